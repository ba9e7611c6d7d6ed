"""How long a frontend's event loop is busy at a time, and how long a thread keeps Python's lock at a time."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable

from known_work import LONGEST_S, least_s
from limits import WAIT_S
from own_time import queued_s

from nic_frontend.service import Service

LOOK_S = 0.005  # between two looks: by so much, what is found may be too long


class Turns:
    """Measures the turns of a loop by a timer in it, which a long turn delays. What counts is the CPU time of
    the loop's thread: the machine may be busy with other things.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.thread: int | None = None  # the loop's
        self._looked = threading.Event()

    async def start(self, service: Service) -> None:
        """In the place of Service.start."""
        self.thread = threading.get_ident()
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

    def least(self, work: Callable[[], None]) -> float:
        """`longest_of`, in seconds of the processor of known_work.py. `work` is done again where that is not
        below LONGEST_S.
        """
        return least_s(lambda: self.longest_of(work), LONGEST_S)


class LockHolds:
    """Measures how long a thread of this process keeps Python's lock, by a thread that needs it every so
    often. What counts is the CPU time of the busiest other thread while this one waited for the lock, and
    not for a core. The loop of `turns` is left out, whose holds show as turns: it gives the lock up for a
    moment at each write to a socket, and takes it back before a thread that waits has woken, so that this one
    may wait through many turns.
    """

    def __init__(self, turns: Turns | None = None) -> None:
        self.longest_s = 0.0
        self._turns = turns
        threading.Thread(target=self._watch, name="lock holds", daemon=True).start()

    def _watch(self) -> None:
        """Between two looks it takes the lock twice: each time that it does, it may wait for a while."""
        schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)  # this thread's, for ever
        before, queued_before, then = _ran_s(), queued_s(schedstat), time.monotonic()
        while True:
            time.sleep(LOOK_S)
            queued = queued_s(schedstat)
            now, at = _ran_s(), time.monotonic()
            judged_elsewhere = (threading.get_ident(), self._turns.thread if self._turns else None)
            others = [thread for thread in now if thread in before and thread not in judged_elsewhere]
            busiest_s = max((now[thread] - before[thread] for thread in others), default=0.0)
            waited_s = at - then - LOOK_S - (queued - queued_before)
            self.longest_s = max(self.longest_s, min(busiest_s, waited_s))
            before, queued_before, then = now, queued, at


def _ran_s() -> dict[int, float]:
    """The CPU time of each thread that runs Python. Nobody else has the lock meanwhile, so none ends."""
    threads = [thread.ident for thread in threading.enumerate() if thread.ident is not None]
    return {thread: time.clock_gettime(time.pthread_getcpuclockid(thread)) for thread in threads}
