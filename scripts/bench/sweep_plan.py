"""The plan of the paper's evaluation: which points there are, how long each takes, and what belongs together.

A point is one window of one server. A unit holds the points that are compared with each other, so all of them
are measured in one run, on one card: those of one rate. Units of one block have the same servers, which start
once for as many units as a run has time for. Blocks are measured in the order of BLOCKS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from blink.bench.trace import CHAT_INPUT, CHAT_OUTPUT, poisson

LEAST_REQUESTS = 100  # measured ones of a point
LEAST_WINDOW_S, MOST_WINDOW_S = 30.0, 90.0
DEEP_REQUESTS, DEEP_WINDOW_S = 1000, 60.0  # a window that measures so many in so short a time does: for p99.9
SEED = 1
LONGEST_ANSWER = CHAT_OUTPUT.high  # tokens
OVERHEAD_S = 8.0  # of a point: processes, warm-up, reading
STOP_S = 5.0  # of a server
SWEEP, INTERFERENCE = "sweep", "interference"
ISOLATED = "isolated"
OTHERS = "others"  # the paper's kinds of tenants, on the cores that are not reserved for the server
OWN = "own"  # antagonists of blink-antagonist on the server's own cores


@dataclass(frozen=True)
class Variant:
    """A server as it is started."""

    server: str  # blink or vllm
    start_s: float  # until it is ready and has been waited for, with a spare
    flags: tuple[str, ...] = ()
    prefix_cache: bool = False
    frontends_apart: bool = False  # on cores of their own, as if on a DPU


VARIANTS = {
    "blink": Variant("blink", 35.0, ("--no-prefix-cache",)),
    "blink-apart": Variant("blink", 35.0, ("--no-prefix-cache",), frontends_apart=True),
    "blink-cache": Variant("blink", 35.0, prefix_cache=True),
    "vllm": Variant("vllm", 100.0),
    "vllm-1024": Variant("vllm", 100.0, ("--max-num-batched-tokens=1024",)),
    "vllm-cache": Variant("vllm", 100.0, prefix_cache=True),
}


@dataclass(frozen=True)
class Times:
    """Of a window, in seconds."""

    window_s: float
    drop_s: float  # of it, at its beginning, are not measured
    drain_s: float


@dataclass(frozen=True)
class Pace:
    """What windows and drains are planned by. These are guesses from earlier runs on one H200, on the safe
    side; no figure depends on them.
    """

    saturation: float  # requests/s that every server takes
    tpot_s: float  # at saturation, of the slowest server
    drop_s: float  # what a mean answer takes: before that, fewer requests end than begin

    def drain_s(self, rate: float, window_s: float) -> float:
        """Until the longest answer has come, behind the backlog that the window has left."""
        backlog_s = max(0.0, rate / self.saturation - 1.0) * window_s
        return float(np.ceil(LONGEST_ANSWER * self.tpot_s + backlog_s))


PACES = {
    "llama-3-8b": Pace(13.0, 0.018, 5.0),
    "qwen3-30b-a3b": Pace(5.5, 0.030, 8.0),
    "phi-4": Pace(7.0, 0.030, 8.0),
    "qwen3-32b": Pace(2.5, 0.050, 12.0),
}


@dataclass(frozen=True)
class Block:
    """Units with the same servers."""

    part: str
    model: str  # a name of PACES, or a directory
    variants: tuple[str, ...]
    rates: tuple[float, ...]
    repeated: tuple[float, ...] = ()  # rates that are measured twice
    conditions: tuple[str, ...] = (ISOLATED,)


BOTH = ("blink", "vllm")
SWEEPS = {  # requests/s, from idle to past saturation; those of the second table, with prefix caches
    "llama-3-8b": (1.5, 3, 6, 9, 12, 15, 18, 28),
    "qwen3-30b-a3b": (1.5, 2, 3, 4, 5, 6, 8, 10),
    "phi-4": (2, 7, 12),
    "qwen3-32b": (1.5, 2, 4),
}
REPEATED = {"llama-3-8b": (6, 15), "qwen3-30b-a3b": (3, 6)}
CACHED_RATES = (3, 9, 15, 18)
SHORT_STEPS = {  # three rates of each, for vLLM with steps of 1,024 tokens
    "llama-3-8b": (3, 9, 15), "qwen3-30b-a3b": (2, 4, 6), "phi-4": (2, 7, 12), "qwen3-32b": (1.5, 2, 4)
}  # fmt: skip
PAIR = ("blink-apart", "vllm")
BLOCKS = (
    *(Block(SWEEP, name, BOTH, SWEEPS[name], REPEATED[name]) for name in ("llama-3-8b", "qwen3-30b-a3b")),
    Block(INTERFERENCE, "qwen3-30b-a3b", PAIR, (4,), conditions=(ISOLATED, OTHERS)),  # Figure 1
    *(Block(SWEEP, name, BOTH, SWEEPS[name]) for name in ("phi-4", "qwen3-32b")),
    Block(INTERFERENCE, "llama-3-8b", PAIR, (6, 12), conditions=(ISOLATED, OTHERS)),
    Block(INTERFERENCE, "qwen3-30b-a3b", PAIR, (5,), conditions=(ISOLATED, OTHERS)),
    Block(INTERFERENCE, "phi-4", PAIR, (3, 7), conditions=(ISOLATED, OTHERS)),
    # Four windows of 32B are longer than a run may be: each server is compared with itself.
    *(Block(INTERFERENCE, "qwen3-32b", (name,), (1.5, 2), conditions=(ISOLATED, OTHERS)) for name in PAIR),
    Block(INTERFERENCE, "qwen3-30b-a3b", ("blink",), (4,), conditions=(ISOLATED, OTHERS, OWN)),
    Block(INTERFERENCE, "qwen3-30b-a3b", PAIR, (4,), conditions=(ISOLATED, OWN)),
    Block(INTERFERENCE, "llama-3-8b", ("blink",), (6,), conditions=(ISOLATED, OTHERS, OWN)),
    Block(INTERFERENCE, "llama-3-8b", PAIR, (6,), conditions=(ISOLATED, OWN)),
    Block(SWEEP, "llama-3-8b", ("blink-cache", "vllm-cache"), CACHED_RATES),
    *(Block(SWEEP, name, ("vllm-1024",), rates) for name, rates in SHORT_STEPS.items()),
)


@dataclass(frozen=True)
class Key:
    """Which point it is."""

    part: str
    variant: str
    model: str
    rate: float
    repeat: int  # from 0
    condition: str


@dataclass(frozen=True)
class Point:
    key: Key
    times: Times

    @property
    def longest_s(self) -> float:
        return self.times.window_s + self.times.drain_s + OVERHEAD_S


@dataclass(frozen=True)
class Unit:
    """Points to be measured in one run. A run measures those of a server together, in this order."""

    block: Block
    points: tuple[Point, ...]

    @property
    def longest_s(self) -> float:
        """Without the servers' starts."""
        return sum(point.longest_s for point in self.points)


def steady_requests(rate: float, window_s: float, drop_s: float) -> int:
    """How many of the trace are due in the window's steady part."""
    arrivals = poisson(rate, window_s, SEED, CHAT_INPUT, CHAT_OUTPUT).arrivals_s
    return int(np.count_nonzero(arrivals >= drop_s))


def planned(pace: Pace, rate: float) -> Times:
    """The shortest window in whole seconds that measures enough. Raises ValueError for a rate too low."""
    deep = steady_requests(rate, DEEP_WINDOW_S, pace.drop_s) >= DEEP_REQUESTS
    least = DEEP_REQUESTS if deep else LEAST_REQUESTS
    for seconds in np.arange(LEAST_WINDOW_S, MOST_WINDOW_S + 1).tolist():
        if steady_requests(rate, seconds, pace.drop_s) >= least:
            return Times(seconds, pace.drop_s, pace.drain_s(rate, seconds))
    raise ValueError(f"{rate:g} requests/s are too few: {MOST_WINDOW_S:g} s measure fewer than {least}")


def units_of(block: Block, times: Callable[[float], Times]) -> list[Unit]:
    """`times`: of a rate."""
    turns = [(rate, 0) for rate in block.rates] + [(rate, 1) for rate in block.repeated]
    return [Unit(block, tuple(_points(block, rate, repeat, times(rate)))) for rate, repeat in turns]


def _points(block: Block, rate: float, repeat: int, times: Times) -> Iterable[Point]:
    model = Path(block.model).name
    for variant in block.variants:
        for condition in block.conditions:
            yield Point(Key(block.part, variant, model, float(rate), repeat, condition), times)


def plan(blocks: Sequence[Block] = BLOCKS) -> list[Unit]:
    return [unit for block in blocks for unit in units_of(block, partial(planned, PACES[block.model]))]


def chosen(
    blocks: Iterable[Block],
    parts: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    variants: Sequence[str] | None = None,
) -> list[Block]:
    """Those of these parts and models, with these variants alone; None for all."""
    narrowed = (
        block if variants is None else replace(block, variants=_among(block.variants, variants))
        for block in blocks
        if (parts is None or block.part in parts) and (models is None or block.model in models)
    )
    return [block for block in narrowed if block.variants]


def _among(names: tuple[str, ...], wanted: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in wanted)


def batch_for(left: Sequence[Unit], seconds: float, starts_s: Callable[[Block], float]) -> list[Unit]:
    """What a run with so much time measures next: of the first block of which a unit fits, all that fit.
    `starts_s`: what the starts and ends of a block's servers take.
    """
    for block in dict.fromkeys(unit.block for unit in left):
        rest = seconds - starts_s(block)
        batch = []
        for unit in left:
            if unit.block == block and unit.longest_s <= rest:
                batch.append(unit)
                rest -= unit.longest_s
        if batch:
            return batch
    return []
