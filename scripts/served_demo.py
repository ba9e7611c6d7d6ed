"""`blink serve demo` for as long as a block lasts, and load beside it: for scripts that show it at work."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
READY_S = 120.0
END_S = 60.0  # open requests may finish within 30 s
BLINK = [sys.executable, "-m", "blink"]


@contextmanager
def served_demo(*flags: str) -> Iterator[str]:
    """The server's URL."""
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        with log.open("w") as output:
            command = [*BLINK, "serve", "demo", "--port=0", *flags]
            server = subprocess.Popen(command, cwd=ROOT, stderr=output)
        try:
            yield _address(log)
        finally:
            end(server)


def _address(log: Path) -> str:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if found := re.search(r"ready after .* at (https?://\S+)/v1", log.read_text()):
            return found[1]
        time.sleep(0.1)
    raise SystemExit(f"the server did not start:\n{log.read_text()}")


def end(process: subprocess.Popen[bytes]) -> None:
    """In order, or after END_S not."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def load(url: str, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """`blink bench serve`, which is ended with the block."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*BLINK, "bench", "serve", url, *flags], cwd=ROOT, **quiet)
    try:
        yield process
    finally:
        end(process)
