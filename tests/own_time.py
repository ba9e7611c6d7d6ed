"""A thread's own time: a busy machine, where threads wait for cores, makes nothing of it longer."""

from __future__ import annotations

import os
import time


def queued_s(schedstat: int) -> float:
    """How long a thread has waited for a core so far, by its file /proc/.../schedstat, which is open."""
    return int(os.pread(schedstat, 100, 0).split()[1]) / 1e9


def own_s() -> float:
    """A clock that stands still while the calling thread waits for a core. It goes on while the thread sleeps
    or waits for another thread."""
    schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    try:
        return time.monotonic() - queued_s(schedstat)
    finally:
        os.close(schedstat)
