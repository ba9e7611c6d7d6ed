"""A GPU that takes the same power all the time, as a counter shows it that moves now and then."""

from __future__ import annotations

import time


class SteadyMeter:
    def __init__(self, watts: float, every_s: float) -> None:
        self._watts = watts
        self._every_s = every_s

    def millijoules(self) -> int:
        moves = int(time.monotonic() / self._every_s)
        return int(1e3 * self._watts * self._every_s * moves)

    def sm_mhz(self) -> int:
        return 1500

    def close(self) -> None:
        pass
