"""How long a frontend's event loop is busy at a time, and how long a thread keeps Python's lock at a time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

from limits import WAIT_S

from nic_frontend.service import Service

LOOK_S = 0.005  # between two looks: by so much, what is found may be too long


class Turns:
    """Measures the turns of a loop by a timer in it, which a long turn delays. What counts is the CPU time of
    the loop's thread: the machine may be busy with other things.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._looked = threading.Event()

    async def start(self, service: Service) -> None:
        """In the place of Service.start."""
        self._task = asyncio.create_task(self._watch())
        await self._start(service)

    _start = staticmethod(Service.start)

    async def _watch(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(LOOK_S)
            self.longest_s = max(self.longest_s, time.thread_time() - before)
            self._looked.set()

    def look(self) -> None:
        """Returns when all has been looked at that was done before."""
        self._looked.clear()
        assert self._looked.wait(WAIT_S)

    def longest_of(self, work: Callable[[], None]) -> float:
        """The longest turn, in seconds, while another thread does `work`."""
        self.look()
        self.longest_s = 0.0
        work()
        self.look()
        return self.longest_s


class LockHolds:
    """Measures how long a thread of this process keeps Python's lock, by a thread that needs it every so
    often. What counts is the CPU time of the busiest other thread while this one waited for the lock, and
    not for a core.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        threading.Thread(target=self._watch, name="lock holds", daemon=True).start()

    def _watch(self) -> None:
        me = threading.get_native_id()
        before, then = _ran_and_queued_s(), time.monotonic()
        while True:
            time.sleep(LOOK_S)
            now, at = _ran_and_queued_s(), time.monotonic()
            queued_s = now[me][1] - before[me][1]
            busiest_s = max(
                ran_s - before[thread][0]
                for thread, (ran_s, _) in now.items()
                if thread in before and thread != me
            )
            self.longest_s = max(self.longest_s, min(busiest_s, at - then - LOOK_S - queued_s))
            before, then = now, at


def _ran_and_queued_s() -> dict[int, tuple[float, float]]:
    """Of each thread that runs Python: its CPU time, and its time on a queue for a core
    (proc_pid_schedstat(5)).
    """
    found = {}
    for thread in threading.enumerate():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            ran, queued, _ = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()
            found[thread.native_id or 0] = int(ran) / 1e9, int(queued) / 1e9
    return found
