"""HTTP to GPU and back: `blink serve demo`, its answers, and its backend stopped while 32 streams run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from demo_model.tasks import Item, check
from serving import ROOT, items, state_of, stop

pytest.importorskip("uvicorn", reason="the frontend needs uvicorn")
httpx = pytest.importorskip("httpx", reason="needs an HTTP client")

TASKS = ("add", "sort_words", "reverse", "fact", "lookup_long", "count_long", "memory", "unicode")
START_S = 120.0


@pytest.fixture(scope="module", params=["shm", "cuda_ipc"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "blink", "serve", "demo", "--device", "gpu", "--port", str(port)]
    command += ["--transport", request.param]
    process = subprocess.Popen([*command, "--ring", f"http-{port}"], cwd=ROOT)
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + START_S
    while True:
        assert process.poll() is None
        assert time.monotonic() < deadline
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                break
        except httpx.TransportError:
            time.sleep(0.1)
    yield url
    process.terminate()
    assert process.wait(60) == 0


async def stream(client: httpx.AsyncClient, item: Item) -> str:
    """The streamed text of the item as a chat; raises if the stream does not end with a reason and [DONE]."""
    body = {"model": "demo", "messages": item.messages, "temperature": 0, "stream": True}
    text, reason, last = "", None, ""
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            if not line.startswith("data: "):
                continue
            last = line[6:]
            if last == "[DONE]":
                break
            choice = json.loads(last)["choices"][0]
            text += choice["delta"].get("content") or ""
            reason = choice["finish_reason"] or reason
    assert last == "[DONE]"
    assert reason == "stop"
    return text


def answers(url: str, chosen: Sequence[Item]) -> list[str]:
    async def run() -> list[str]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client:
            return await asyncio.gather(*(stream(client, item) for item in chosen))

    return asyncio.run(run())


def backend_pid(url: str) -> int:
    """Of the server at `url`: the process of `blink backend` with its ring."""
    ring = f"--ring=http-{url.rsplit(':', 1)[1]}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"backend" in words and ring in words:
            return int(folder.name)
    raise AssertionError("no backend process")


def test_the_demo_model_answers_right(server: str) -> None:
    chosen = items(TASKS, 160)
    right = sum(check(item, text) for item, text in zip(chosen, answers(server, chosen), strict=True))
    assert right >= 0.95 * len(chosen)


def test_32_streams_with_the_backend_stopped(server: str) -> None:
    """The claim of the whole system: no host process of the backend takes part in serving."""
    chosen = items(("count_long", "table", "count", "repeat"), 32)
    running = answers(server, chosen)
    pid = backend_pid(server)
    stop(pid)
    try:
        stopped = answers(server, chosen)
        assert state_of(pid) == "T"
    finally:
        os.kill(pid, signal.SIGCONT)
    assert stopped == running
    assert sum(check(item, text) for item, text in zip(chosen, stopped, strict=True)) >= 30
