"""What a frontend does once a second beside serving.

It tells its figures to the others of its host and to the log, and looks whether its API keys have changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from nic_frontend.http.keys import Keys
from nic_frontend.observe.exposition import Seen
from nic_frontend.observe.metrics import Figures
from nic_frontend.observe.shared_figures import SharedFigures
from nic_frontend.observe.throughput import Throughput
from ringbuffer.messages import LOG_FIELDS

log = logging.getLogger(__name__)

PUBLISH_S = 1.0
LINE_S = 10.0


class Reporter:
    """`figures` are this frontend's, `look` finds everybody's."""

    def __init__(
        self,
        shared: SharedFigures,
        lease: int,
        figures: Callable[[], Figures],
        look: Callable[[], Awaitable[Seen]],
        keys: Keys,
    ) -> None:
        self._shared, self._lease, self._figures, self._look = shared, lease, figures, look
        self._keys = keys
        self._throughput = Throughput()

    async def run(self) -> None:
        next_line = time.monotonic()
        while True:
            try:
                self._keys.look()
                with contextlib.suppress(OSError):  # /dev/shm is full: others see what was there before
                    self._shared.publish(self._figures())
                if time.monotonic() >= next_line:
                    next_line += LINE_S
                    self._tell(await self._look())
            except Exception:  # the next second is another one
                log.exception("telling the figures failed")
            await asyncio.sleep(PUBLISH_S)

    def _tell(self, seen: Seen) -> None:
        """One of the host's frontends speaks for all of them."""
        told = self._throughput.line(seen, time.monotonic())
        if told is not None and self._lease == min(seen.frontends):
            text, numbers = told
            log.info("%s", text, extra={LOG_FIELDS: numbers})
