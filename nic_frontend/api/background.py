"""Responses that are computed while nobody waits: their clients ask for them later, at any frontend."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from nic_frontend.api.keep import Kept
from nic_frontend.errors import ApiError
from nic_frontend.http.asgi import Receive, Send
from nic_frontend.store.store import Store

log = logging.getLogger(__name__)

LOOK_S = 0.5  # between looks for what was cancelled at another frontend
GRACE_S = 5.0  # at the end, for the failure of the last ones to be written

Compute = Callable[[Receive, Send], Awaitable[None]]


async def _stays() -> dict[str, Any]:
    """A client that never leaves."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError


async def _reads(message: Any) -> None:
    """A client that reads everything at once. The answer was stored before."""


class Background:
    """Those of this frontend."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._running: dict[str, tuple[Kept, asyncio.Task[None]]] = {}

    async def begin(self, kept: Kept, compute: Compute) -> None:
        """Returns when its request has a slot, and it is stored. Raises ApiError where that cannot be."""
        task = asyncio.create_task(self._compute(kept, compute))
        self._running[kept.id] = kept, task
        task.add_done_callback(lambda _: self._running.pop(kept.id))
        begun = asyncio.create_task(kept.is_begun.wait())
        await asyncio.wait((task, begun), return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        if not kept.is_begun.is_set():
            await task

    async def _compute(self, kept: Kept, compute: Compute) -> None:
        """Raises ApiError only where it was never stored, and nobody knows its id."""
        try:
            await compute(_stays, _reads)
        except ApiError as error:
            if not kept.is_begun.is_set():
                raise
            failure = error
        except Exception:
            log.exception("the response %s failed", kept.id)
            failure = ApiError(500, "internal error; the server's log has the details")
        else:
            return
        try:
            await kept.fail(failure)
        except ApiError:
            log.warning("the failure of response %s was not stored: %s", kept.id, failure)

    async def run(self) -> None:
        """Tells the store what has begun, and ends what was cancelled, for as long as the frontend serves."""
        told: set[str] = set()
        while True:
            await asyncio.sleep(LOOK_S)
            waiting = {id: one for id, one in self._running.items() if one[0].is_open}
            try:
                begun = {id for id, (kept, _) in waiting.items() if kept.has_answered}
                for id in begun - told:
                    await self._store.begun(id)
                told = begun
                for id in await self._store.unwanted(list(waiting)) if waiting else ():
                    kept, task = waiting[id]
                    if kept.is_open:
                        task.cancel()
            except ApiError as error:
                log.warning("responses in the background were not looked after: %s", error)

    async def end(self, timeout_s: float) -> None:
        """Waits for all; then they have failed."""
        tasks = [task for _, task in self._running.values()]
        if not tasks:
            return
        await asyncio.wait(tasks, timeout=timeout_s + GRACE_S)
        for task in tasks:
            task.cancel()
