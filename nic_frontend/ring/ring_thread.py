"""The thread that reads the ring for the event loop: a ring on another host may answer late (F10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class RingThread:
    """Close it before the transport that its calls use."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "ring")

    async def run(self, call: Callable[[], T]) -> T:
        """What `call` returns or raises. It goes on if the caller is cancelled."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def close(self) -> None:
        """Waits for the call that is under way."""
        self._executor.shutdown(cancel_futures=True)
