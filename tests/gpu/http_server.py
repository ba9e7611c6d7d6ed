"""`blink serve demo` on the GPU, and many streamed chats with it at once."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx
from demo_model.tasks import Item
from free_port import free_port
from limits import START_S
from serving import ROOT


@contextmanager
def serve_http(*flags: str, environment: dict[str, str] | None = None) -> Iterator[str]:
    """The URL of a server that is ready; `environment`: another one than this process's."""
    port = free_port()
    command = [sys.executable, "-m", "blink", "serve", "demo", "--device", "gpu", "--port", str(port)]
    process = subprocess.Popen([*command, "--ring", f"http-{port}", *flags], cwd=ROOT, env=environment)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(process, url)
        yield url
    finally:
        process.terminate()
        assert process.wait(60) == 0


def wait_until_ready(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + START_S
    while True:
        assert process.poll() is None
        assert time.monotonic() < deadline
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)


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
