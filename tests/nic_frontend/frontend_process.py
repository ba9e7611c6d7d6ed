"""A frontend as a process of its own, which tests start and end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from free_port import free_port
from harness import wait_until
from limits import START_S, WAIT_S
from mock_backend import MockBackend

__all__ = ["port", "processes"]

ROOT = Path(__file__).resolve().parents[2]


class Process:
    """`limit` is a command of a shell that the process starts with, and `more` are further flags."""

    def __init__(
        self,
        backend: MockBackend,
        model_dir: Path,
        port: int,
        drain_s: float = 10.0,
        limit: str = ":",
        more: tuple[str, ...] = (),
    ) -> None:
        command = [sys.executable, "-m", "blink", "frontend", str(model_dir), "--ring", str(backend.path)]
        flags = ["--port", str(port), "--drain-timeout", str(drain_s), "--attach-timeout", str(START_S)]
        flags += more
        shell = ["sh", "-c", f'{limit} && exec "$@"', "sh"]
        self.process = subprocess.Popen(
            [*shell, *command, *flags], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        self.url = f"http://127.0.0.1:{port}"

    def wait_ready(self) -> None:
        wait_until(self._healthy, START_S)

    def _healthy(self) -> bool:
        assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
        try:
            return httpx.get(f"{self.url}/health", timeout=WAIT_S).status_code == 200
        except httpx.TransportError:
            return False

    def end(self, timeout_s: float = WAIT_S) -> str:
        """Waits for the end and returns what was logged."""
        return self.process.communicate(timeout=timeout_s)[1]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.end()
