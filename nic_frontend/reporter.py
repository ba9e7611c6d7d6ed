"""Tells of a frontend's figures while it serves: to the other frontends of its host, and in the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from nic_frontend.exposition import Seen
from nic_frontend.metrics import Figures
from nic_frontend.shared_figures import SharedFigures
from nic_frontend.throughput import Throughput
from ringbuffer.messages import LOG_FIELDS

log = logging.getLogger(__name__)

PUBLISH_S = 1.0
LINE_S = 10.0


class Reporter:
    """`figures` are this frontend's, `look` finds everybody's."""

    def __init__(
        self, path: Path, lease: int, figures: Callable[[], Figures], look: Callable[[], Seen]
    ) -> None:
        self._lease, self._figures, self._look = lease, figures, look
        self._throughput = Throughput()
        self._shared: SharedFigures | None = None
        try:
            self._shared = SharedFigures(path, lease)
        except OSError as error:
            log.warning("/metrics shows this frontend alone: cannot share figures in %s: %s", path, error)

    def others(self) -> dict[int, Figures]:
        """The figures of the host's other frontends, by lease."""
        return self._shared.others() if self._shared else {}

    async def run(self) -> None:
        next_line = time.monotonic()
        while True:
            if self._shared is not None:
                with contextlib.suppress(OSError):  # /dev/shm is full: others see what was there before
                    self._shared.publish(self._figures())
            if time.monotonic() >= next_line:
                next_line += LINE_S
                self._tell(self._look())
            await asyncio.sleep(PUBLISH_S)

    def _tell(self, seen: Seen) -> None:
        """One of the host's frontends speaks for all of them."""
        told = self._throughput.line(seen, time.monotonic())
        if told is not None and self._lease == min(seen.frontends):
            text, numbers = told
            log.info("%s", text, extra={LOG_FIELDS: numbers})

    def close(self) -> None:
        if self._shared is not None:
            self._shared.close()
