"""The slot tracker (paper section 4.4): which slots of the lease are free, known without reading the ring.

A slot is free when its status word is {last sequence, EMPTY}. The token reader sees that in its bulk read and
reports it once, so this cache is exact but for slots whose release is under way.
"""

from __future__ import annotations

import asyncio


class SlotTracker:
    def __init__(self, n_slots: int) -> None:
        self.n_slots = n_slots
        self._released: asyncio.Future[None] | None = None
        self.reset()

    def reset(self) -> None:
        """All slots are free: the scheduler has just granted the lease."""
        self._free = bytearray(b"\1" * self.n_slots)
        self._hint = 0
        self.n_free = self.n_slots
        self.n_releasing = 0

    def take(self, n: int) -> list[int]:
        """n free slots from a circular scan that starts behind the last one taken; empty when there are not
        enough.
        """
        if n > self.n_free:
            return []
        taken = []
        for _ in range(n):
            slot = self._free.find(1, self._hint)
            if slot < 0:
                slot = self._free.find(1)
            self._free[slot] = 0
            self._hint = slot + 1
            taken.append(slot)
        self.n_free -= n
        return taken

    async def wait(self, n: int, timeout_s: float) -> list[int]:
        """As `take`, but waits for slots whose release is under way.

        Empty when these do not suffice or take too long.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while not (taken := self.take(n)):
            left = deadline - loop.time()
            if left <= 0 or self.n_free + self.n_releasing < n:
                break
            if self._released is None or self._released.done():
                self._released = loop.create_future()
            await asyncio.wait([self._released], timeout=left)
        return taken

    def releasing(self) -> None:
        """A slot's request has ended; `free` follows."""
        self.n_releasing += 1

    def free(self, slot: int) -> None:
        self.n_releasing -= 1
        self.put_back(slot)

    def put_back(self, slot: int) -> None:
        """Returns a slot that was taken and never submitted to."""
        self._free[slot] = 1
        self.n_free += 1
        if self._released is not None and not self._released.done():
            self._released.set_result(None)
