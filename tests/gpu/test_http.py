"""HTTP to GPU and back: `blink serve demo`, its answers, and its backend stopped while 32 streams run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from demo_model.tasks import check
from process_state import state_of, stop
from serving import items

pytest.importorskip("uvicorn", reason="the frontend needs uvicorn")
pytest.importorskip("httpx", reason="needs an HTTP client")
from http_server import answers, serve_http

TASKS = ("add", "sort_words", "reverse", "fact", "lookup_long", "count_long", "memory", "unicode")


@pytest.fixture(scope="module", params=["shm", "cuda_ipc"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    with serve_http("--transport", request.param) as url:
        yield url


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
