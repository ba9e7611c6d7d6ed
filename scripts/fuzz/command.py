"""The command line of a fuzzer whose cases are drawn from seeds, and how it ends."""

from __future__ import annotations

import argparse
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable

Ran = tuple[Counter[str], list[str]]  # what was done, and the faults


def parsed(description: str, what: str, count: int, *, corpus: bool = False) -> argparse.Namespace:
    """The options `count`, `seconds` and `seed` of a fuzzer that tries `what`; with `corpus`, that flag too.

    `options.count` is None where only `--seconds` ends the run. Where neither is given, it is `count`.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--count", type=int, help=f"{what} (default: {count}; with --seconds: no limit)")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--seed", type=int, help="the first seed (default: from the clock)")
    if corpus:
        parser.add_argument(
            "--corpus", action="store_true", help="what was found before, instead of new ones"
        )
    options = parser.parse_args()
    if options.seconds is None:
        options.seconds = float("inf")
        options.count = count if options.count is None else options.count
    if options.seed is None:
        options.seed = int(time.time())
    return options


def seeds(first: int, count: int | None) -> Iterable[int]:
    """`count` seeds from the first one; None: without end."""
    return itertools.count(first) if count is None else range(first, first + count)


def told(run: Callable[[], Ran], seed: int) -> int:
    """Runs, prints what came of it, and returns the exit status."""
    began = time.monotonic()
    counts, faults = run()
    print(", ".join(f"{name}: {n}" for name, n in sorted(counts.items())))
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults in {time.monotonic() - began:.0f} s, seeds from {seed}")
    return 1 if faults else 0
