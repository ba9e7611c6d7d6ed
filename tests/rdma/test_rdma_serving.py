"""The whole path as two operators run it: `blink backend --rdma-listen` on one side, with the emulated
scheduler and the demo model, and `blink frontend --connect` on the other.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from demo_client import ask, completion, items, right
from fabric import PASSIVE_ADDRESS, devices
from limits import WAIT_S
from streams import Stream

START_S = 280.0
ROOT = Path(__file__).resolve().parents[2]


class Program:
    """`blink` with these arguments; its output so far. `close` ends it as an operator would."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        with log.open("w") as output:
            command = [sys.executable, "-m", "blink", *arguments]
            self.process = subprocess.Popen(command, stderr=output, stdout=output, cwd=ROOT)

    def wait_for(self, pattern: str) -> str:
        deadline = time.monotonic() + START_S
        while not (found := re.search(pattern, self._log.read_text())):
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.1)
        return found[1]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(WAIT_S)


@pytest.fixture
def served(tmp_path: Path, key_file: Path) -> Iterator[tuple[Program, str]]:
    """A backend, and the URL of a frontend on the other end of the cable."""
    key = f"--ring-key-file={key_file}"
    small = ["--slots=16", "--max-batch=8", "--max-context=256", "--kv-memory=16MiB"]
    backend = Program(
        tmp_path / "backend", "backend", "demo", "--device=cpu", f"--ring=rdma-{os.getpid()}", *small, key,
        f"--rdma-listen={PASSIVE_ADDRESS}:0",
    )  # fmt: skip
    try:
        address = backend.wait_for(r"set themselves up at (\S+)")
        frontend = Program(
            tmp_path / "frontend", "frontend", "demo", f"--connect=verbs://{address}", "--port=0", key,
            f"--rdma-device={devices()[-1]}",
        )  # fmt: skip
        try:
            yield backend, frontend.wait_for(r"serving \S+ on (http://\S+)")
        finally:
            frontend.close()
    finally:
        backend.close()


def exchange_of(backend: Program) -> int:
    """The process id of the backend's exchange."""
    path = Path(f"/proc/{backend.process.pid}/task/{backend.process.pid}/children")
    [pid] = path.read_text().split()
    return int(pid)


def test_right_answers_with_the_exchange_stopped(served: tuple[Program, str]) -> None:
    """V8."""
    backend, url = served
    chosen = items("add", 2) + items("reverse", 2)
    os.kill(exchange_of(backend), signal.SIGSTOP)
    try:
        judged = right(chosen, ask(url, [completion(item) for item in chosen]))
        assert sum(judged) >= 3
        stream = Stream(url, 12)
        stream.join()
        assert stream.text
        assert not stream.error
    finally:
        os.kill(exchange_of(backend), signal.SIGCONT)
    assert httpx.get(f"{url}/health", timeout=WAIT_S).status_code == 200
