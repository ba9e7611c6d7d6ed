"""Notices an event loop that does not turn: no stream goes on then, whoever held it up (F10)."""

from __future__ import annotations

import asyncio
import faulthandler
import sys

from nic_frontend.library import library

BEATS = 20  # in the time that is allowed


class Watchdog:
    """From `run` to `close`, ends the process when the loop stands still for `limit_s`, and prints where.

    Whoever started the process starts another. A process that was stopped itself has not hung (F13).
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._native = library()
        self._watchdog: int | None = None

    async def run(self) -> None:
        """A task of the loop that is watched."""
        faulthandler.enable(sys.__stderr__ or 2)
        self._watchdog = self._native.blink_watchdog_create(int(self._limit_s * 1e9))
        while True:
            self._native.blink_watchdog_beat(self._watchdog)
            await asyncio.sleep(self._limit_s / BEATS)

    def close(self) -> None:
        if self._watchdog is not None:
            self._native.blink_watchdog_destroy(self._watchdog)
            self._watchdog = None
