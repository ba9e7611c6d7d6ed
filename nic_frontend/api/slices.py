"""Long work in slices, between which other calls have their turn (F10)."""

from __future__ import annotations

import asyncio


class Slices:
    """Counts work in units of its own, such as bytes; `most` of them are one slice."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._done = 0

    async def did(self, work: int) -> None:
        """Other calls have their turn if the slice is full."""
        self._done += work
        if self._done >= self._most:
            self._done = 0
            await asyncio.sleep(0)
