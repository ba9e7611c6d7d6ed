"""A process that is stopped, to show that nobody needs it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

PATIENCE_S = 120.0  # nothing here takes a second on a machine that is not emulated


def stat_of(process: Path) -> list[str]:
    """What proc(5) says of a process or a thread, /proc/PID or /proc/PID/task/TID, from its state on."""
    return (process / "stat").read_text().rsplit(")", 1)[1].split()


def state_of(pid: int) -> str:
    """The process's state letter (proc(5)): T when stopped."""
    return stat_of(Path(f"/proc/{pid}"))[0]


def stop(pid: int) -> None:
    """SIGSTOP, and waits until it has taken effect in every thread: until then they use time."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + PATIENCE_S
    while not _is_stopped(pid):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _is_stopped(pid: int) -> bool:
    try:
        return all(stat_of(thread)[0] == "T" for thread in Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):  # a thread has ended meanwhile
        return False
