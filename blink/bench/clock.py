"""Waiting for a moment of CLOCK_MONOTONIC, and how long whoever was refused waits."""

from __future__ import annotations

import asyncio
import time

REFUSED_S = 0.05  # until a stream, a user or a lane whose request failed goes on


async def until(moment_ns: int) -> None:
    while (left := moment_ns - time.monotonic_ns()) > 0:
        await asyncio.sleep(left / 1e9)
