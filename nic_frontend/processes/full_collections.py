"""When Python's garbage collector looks for cycles: seldom, and at all objects while few requests are open.

A full collection looks at whatever the open requests hold, and the event loop waits for it: with 4,096
streams open, one took half a second of the processor (docs/benchmarks/open-requests.md). Left alone, the
collector makes one whenever there are a quarter more objects, and so while requests come in. What dies is
freed at once by its reference count; full collections are for cycles that outlive the smaller ones, and wait.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

FEW = 128  # open requests, of which a collection takes some 17 ms
# Objects between two collections of the youngest, and so many of these between two of the middle generation.
# A large request makes some 100,000 that stay until its end; with Python's own numbers half of the loop's
# time would be collections.
YOUNG, ROUNDS = 20_000, 20
DUE = 10  # collections of the middle generation behind which a full one is due, as in Python itself
CALM_S = 5.0  # since more were open: what held their objects has let go
EARLIEST_S = 10.0  # between two
LATEST_S = 600.0  # one that is due waits no longer, however many are open
NEVER = 1 << 30


class FullCollections:
    """From the constructor to `leave`, the collector makes full collections in `look` alone. `now` is a time
    in seconds.
    """

    def __init__(self, now: float) -> None:
        self._before = gc.get_threshold()
        gc.set_threshold(YOUNG, ROUNDS, NEVER)
        self._last = now
        self._crowded = now - CALM_S

    def look(self, n_open: Callable[[], int], now: float) -> None:
        """To be called again and again, on the event loop."""
        if n_open() > FEW:
            self._crowded = now
        since = now - self._last
        if gc.get_count()[2] <= DUE or since < EARLIEST_S:
            return
        if now - self._crowded >= CALM_S or since >= LATEST_S:
            gc.collect()
            self._last = now

    def leave(self) -> None:
        gc.set_threshold(*self._before)
