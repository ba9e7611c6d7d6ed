"""Servers for the tests of the whole path: HTTP, ring, scheduler, engine, and back, on the CPU emulation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from serve_process import Serve, ServeProcess


@pytest.fixture(scope="session")
def server() -> Iterator[ServeProcess]:
    """With default flags; its tests leave nothing open behind them."""
    process = ServeProcess()
    try:
        yield process.wait_ready()
    finally:
        process.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A function that starts a server with flags; all are stopped at the end, in order and with success."""
    started: list[ServeProcess] = []

    def start(*flags: str) -> ServeProcess:
        started.append(ServeProcess(*flags))
        return started[-1].wait_ready()

    yield start
    statuses = [process.stop() if process.process.poll() is None else 0 for process in started]
    for process in started:
        process.close()
    assert not any(statuses)
