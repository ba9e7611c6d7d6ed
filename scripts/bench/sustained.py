"""What the same over and over takes, in time and in power.

Near its power limit a GPU lowers its clocks within tens of milliseconds, which a short series after a pause
does not show.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

WARM_UP_S = 0.5  # until clocks have settled
BURST_S = 0.03  # that is enqueued at once


@dataclass(frozen=True)
class Sustained:
    """Of one of many; `sm_mhz` at the end."""

    us: float
    watts: float
    sm_mhz: int

    @property
    def joules(self) -> float:
        return self.us * self.watts / 1e6


class Meter(Protocol):
    """Of a GPU: blink.bench.energy.EnergyCounter."""

    def millijoules(self) -> int: ...
    def sm_mhz(self) -> int: ...


def sustain(
    enqueue: Callable[[], object], wait: Callable[[], None], alone_us: float, meter: Meter, seconds: float
) -> Sustained:
    """Mean over `seconds` or more, between the ends of two bursts in which the counter moved."""
    replays = max(1, int(BURST_S * 1e6 / alone_us))

    def burst() -> None:
        for _ in range(replays):
            enqueue()
        wait()

    def until(done: Callable[[], bool]) -> int:
        n = 0
        while not done():
            burst()
            n += replays
        return n

    def moved() -> Callable[[], bool]:
        before = meter.millijoules()
        return lambda: meter.millijoules() != before

    warm = time.monotonic() + WARM_UP_S
    until(lambda: time.monotonic() >= warm)
    until(moved())
    began, energy = time.monotonic(), meter.millijoules()
    n = until(lambda: time.monotonic() >= began + seconds)
    n += until(moved())
    took, spent = time.monotonic() - began, meter.millijoules() - energy
    return Sustained(took / n * 1e6, spent / 1e3 / took, meter.sm_mhz())
