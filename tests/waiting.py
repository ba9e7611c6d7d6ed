"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

from limits import WAIT_S

from ringbuffer.region import Region


def wait_until(
    condition: Callable[[], object], timeout_s: float = WAIT_S, what: str = "the condition"
) -> float:
    """Seconds until the condition came true. Fails when it does not in time."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout_s, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.002)
    return time.monotonic() - began


def idle_stats(region: Region) -> dict[str, int]:
    """The scheduler's stats once nothing is open. It publishes them a while after an answer is out, and its
    heartbeat behind them."""

    def is_idle() -> bool:
        stats = region.stats()
        return stats["running"] == stats["waiting"] == 0

    wait_until(is_idle, what="an idle scheduler")
    beat = int(region.header["heartbeat"][0])
    wait_until(lambda: int(region.header["heartbeat"][0]) != beat, what="a heartbeat")
    return region.stats()
