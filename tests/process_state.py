"""What the kernel says of another process, and a process that is stopped, to show that nobody needs it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from limits import WAIT_S
from waiting import wait_until


def stat_of(process: Path) -> list[str]:
    """What proc(5) says of a process or a thread, /proc/PID or /proc/PID/task/TID, from its state on."""
    return (process / "stat").read_text().rsplit(")", 1)[1].split()


def state_of(pid: int) -> str:
    """The process's state letter (proc(5)): T when stopped."""
    return stat_of(Path(f"/proc/{pid}"))[0]


def alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and was not reaped does not."""
    try:
        return state_of(pid) != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    """The processes that it has started and that run."""
    found = []
    for directory in Path("/proc").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if directory.name.isdigit() and int(stat_of(directory)[1]) == pid and alive(int(directory.name)):
                found.append(int(directory.name))
    return found


def stop(pid: int, timeout_s: float = WAIT_S) -> None:
    """SIGSTOP, and waits until it has taken effect in every thread: until then they use time."""
    os.kill(pid, signal.SIGSTOP)

    def stopped() -> bool:
        try:
            return all(stat_of(thread)[0] == "T" for thread in Path(f"/proc/{pid}/task").iterdir())
        except (FileNotFoundError, ProcessLookupError):  # a thread has ended meanwhile
            return False

    wait_until(stopped, timeout_s, "stopped")


@contextlib.contextmanager
def stopped(pid: int, timeout_s: float = WAIT_S) -> Iterator[None]:
    """As stop, until the block ends."""
    stop(pid, timeout_s)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def slowed(process: int) -> Iterator[None]:
    """It runs for a tenth of the time, until the block ends or the process does."""
    ended = threading.Event()

    def slow() -> None:
        with contextlib.suppress(ProcessLookupError):
            while not ended.is_set():
                os.kill(process, signal.SIGSTOP)
                ended.wait(0.045)
                os.kill(process, signal.SIGCONT)
                ended.wait(0.005)

    thread = threading.Thread(target=slow)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
