"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

from limits import WAIT_S


def wait_until(
    condition: Callable[[], object], timeout_s: float = WAIT_S, what: str = "the condition"
) -> float:
    """Seconds until the condition came true. Fails when it does not in time."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout_s, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.002)
    return time.monotonic() - began
