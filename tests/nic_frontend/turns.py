"""How long the event loop of a frontend is busy at a time."""

from __future__ import annotations

import asyncio
import time

from nic_frontend.service import Service


class Turns:
    """Measures the turns of a loop by a task in it, which has its own turn in each. What counts is the CPU
    time of the loop's thread: the machine may be busy with other things.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.watching = False

    async def start(self, service: Service) -> None:
        """In the place of Service.start."""
        self._task = asyncio.create_task(self._watch())
        await self._start(service)

    _start = staticmethod(Service.start)

    async def _watch(self) -> None:
        while True:
            if not self.watching:
                await asyncio.sleep(0.005)
            before = time.thread_time()
            await asyncio.sleep(0)
            self.longest_s = max(self.longest_s, time.thread_time() - before)
