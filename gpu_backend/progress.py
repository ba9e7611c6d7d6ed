"""How far the start has come, in one line on a terminal and in a few elsewhere."""

from __future__ import annotations

import sys
import time

from gpu_backend.messages import say

TERMINAL_S = 0.1  # between updates
LOG_S = 10.0
BAR_CELLS = 20


class ProgressLine:
    """A native_weights.Progress: a bar on a terminal, and for weights their bytes and rate."""

    def __init__(self) -> None:
        self._what = ""
        self._start = self._shown = 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what != self._what:
            self._what, self._start, self._shown = what, now, now
        terminal = sys.stderr.isatty()
        if done < total and now - self._shown < (TERMINAL_S if terminal else LOG_S):
            return
        self._shown = now
        line = f"{what} {describe(what, done, total, now - self._start)}"
        if not terminal:
            say(line)
            return
        cells = BAR_CELLS * done // total
        bar = "#" * cells + "." * (BAR_CELLS - cells)
        print(
            f"\rblink backend: {line} [{bar}]", end="\n" if done == total else "", file=sys.stderr, flush=True
        )


def describe(what: str, done: int, total: int, seconds: float) -> str:
    """ "12.34 of 61.06 GB, 2.1 GB/s" of weights, "12/90" of anything else."""
    if what != "weights":
        return f"{done}/{total}"
    rate = f", {done / 1e9 / seconds:.1f} GB/s" if seconds > 0 else ""
    return f"{done / 1e9:.2f} of {total / 1e9:.2f} GB{rate}"
