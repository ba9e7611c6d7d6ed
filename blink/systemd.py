"""Tells systemd that this service is ready, and that it lives (sd_notify(3), WatchdogSec). Elsewhere it does
nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time


class Service:
    """What systemd wants to hear, by the environment. Children do not inherit it: they are no services."""

    def __init__(self) -> None:
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        watched = os.environ.pop("WATCHDOG_PID", "") in ("", str(os.getpid()))
        limit_us = os.environ.pop("WATCHDOG_USEC", "") if watched else ""
        self._pause_s = int(limit_us) / 4e6 if limit_us else float("inf")
        self._told = time.monotonic()

    def ready(self) -> None:
        self._tell("READY=1")

    def lives(self) -> None:
        """Called as often as one likes; tells it often enough."""
        now = time.monotonic()
        if now - self._told >= self._pause_s:
            self._told = now
            self._tell("WATCHDOG=1")

    def _tell(self, state: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
            connection.setblocking(False)
            connection.sendto(state.encode(), address)
