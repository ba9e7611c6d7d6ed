"""How slow this processor is just now: processor time is longer on one that is slower, or whose caches and
memory others use, so what judges by it says of which processor."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

KNOWN_S = 0.0065  # what the work below takes of a processor of some 3 GHz that has nothing else to do
ITEMS = 20_000
TEXT = json.dumps([{"role": "user", "content": "x", "n": i} for i in range(ITEMS)])
LONGEST_S = 0.1  # that a frontend's turn may take, and a hold of Python's lock (F10), of such a processor
TRIES = 4
SLOWEST = 5.0  # times as slow: beyond that, nothing is known


def slowness() -> float:
    """How many times as long as KNOWN_S some work of the kind that a frontend does takes now: 1 at least, and
    SLOWEST at most.
    """
    return min(max(1.0, known_work_s() / KNOWN_S), SLOWEST)


def known_work_s() -> float:
    """Processor time of this thread: the median, so that one that was disturbed counts for nothing."""
    times = []
    for _ in range(9):
        began = time.thread_time()
        assert sum(len(value["content"]) for value in json.loads(TEXT)) == ITEMS
        times.append(time.thread_time() - began)
    return sorted(times)[len(times) // 2]


def cpu_s(work: Callable[[], object]) -> float:
    """Processor time that the work takes in this thread."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def least_cpu_s(work: Callable[[], object], enough_s: float) -> float:
    """The same of a processor that takes KNOWN_S, see `least_s`: the work may be done several times."""
    return least_s(lambda: cpu_s(work), enough_s)


def least_s(measure: Callable[[], float], enough_s: float) -> float:
    """What `measure` finds of processor time, in seconds of a processor that takes KNOWN_S. What is not below
    `enough_s` is measured again, and the least of it counts: something else may have cost the rest.
    """
    found_s = measure()
    for _ in range(TRIES - 1):
        if found_s < enough_s:
            break
        before = slowness()
        again_s = measure()
        found_s = min(found_s, 2 * again_s / (before + slowness()))
    return found_s
