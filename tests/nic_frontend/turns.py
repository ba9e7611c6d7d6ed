"""How long the event loop of a frontend is busy at a time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from limits import WAIT_S

from nic_frontend.service import Service


class Turns:
    """Measures the turns of a loop by a task in it, which has its own turn in each. What counts is the CPU
    time of the loop's thread: the machine may be busy with other things.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._watching = False
        self._turned = threading.Event()

    async def start(self, service: Service) -> None:
        """In the place of Service.start."""
        self._task = asyncio.create_task(self._watch())
        await self._start(service)

    _start = staticmethod(Service.start)

    async def _watch(self) -> None:
        while True:
            if not self._watching:
                await asyncio.sleep(0.005)
            before = time.thread_time()
            await asyncio.sleep(0)
            self.longest_s = max(self.longest_s, time.thread_time() - before)
            self._turned.set()

    def longest_of(self, work: Callable[[], None]) -> float:
        """The longest turn, in seconds, while another thread does `work`."""
        self._watching = True
        self._turned.clear()
        assert self._turned.wait(WAIT_S)
        self.longest_s = 0.0
        try:
            work()
        finally:
            self._watching = False
        return self.longest_s
