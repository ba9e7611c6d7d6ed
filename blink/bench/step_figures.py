"""From the traces of steps to figures: a step's parts, the engine's share of time, Photon's cost model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_backend.abi import StepKind

STRIP_STEPS = 12  # of a timeline


@dataclass(frozen=True)
class StepFigures:
    """Medians over the decode steps of a full batch that followed one another, in microseconds.

    `forward` is the start of a step to its logits, `sampling` the logits to its completion, `period` one
    step's start to the next one's. `busy` is the share of the periods in which a step ran. `turn` is what
    the scheduler does for a step: take the results of an earlier one, plan, launch.
    """

    steps: int
    forward_us: float
    sampling_us: float
    period_us: float
    period_p99_us: float
    busy: float
    turn_us: float


def full_decodes(steps: NDArray[Any], rows: int) -> NDArray[Any]:
    """Decode steps of `rows` rows whose successor is one too, and the last one's successor; oldest first."""
    full = (steps["kind"] == StepKind.DECODE) & (steps["batch_size"] == rows)
    if full.size < 2:
        return steps[:0]
    follows = full[:-1] & full[1:] & (np.diff(steps["id"].astype(np.int64)) == 1)
    chosen: NDArray[Any] = steps[np.append(follows, False) | np.append(False, follows)]
    return chosen


def step_figures(steps: NDArray[Any], rows: int) -> StepFigures:
    """Of blink_step_trace `steps`. Raises ValueError when no two full steps followed one another."""
    chosen = full_decodes(steps, rows)
    if chosen.size < 2:
        raise ValueError(f"no decode steps of {rows} rows followed one another: ask for longer answers")
    start, sample, done = (chosen[name].astype(np.int64) for name in ("start_ns", "sample_ns", "done_ns"))
    next_to_each_other = np.diff(chosen["id"].astype(np.int64)) == 1
    period = np.diff(start)[next_to_each_other]
    ran = (done - start)[:-1][next_to_each_other]
    turn = chosen["launched_ns"].astype(np.int64) - chosen["turn_ns"].astype(np.int64)
    return StepFigures(
        steps=int(chosen.size),
        forward_us=float(np.median(sample - start)) / 1e3,
        sampling_us=float(np.median(done - sample)) / 1e3,
        period_us=float(np.median(period)) / 1e3,
        period_p99_us=float(np.percentile(period, 99)) / 1e3,
        busy=float(ran.sum() / period.sum()),
        turn_us=float(np.median(turn)) / 1e3,
    )


def zombie_tax(zombie_rows: int, tokens: int, rows: int) -> float:
    """Photon's z: the share of forwards that were wasted on rows that had ended.

    A zombie of a single stream wastes a step; among `rows` rows it is one in a step that is run anyway.
    """
    return zombie_rows / (tokens + zombie_rows) / rows


def predicted_speedup(blocking_us: float, other_us: float, tax: float) -> float:
    """Photon's cost model: T_block / T_pipe * (1 - z)."""
    return blocking_us / other_us * (1.0 - tax)


def strip(steps: NDArray[Any], rows: int, one_clock: bool) -> dict[str, list[list[float]]]:
    """Spans [begin, end] in microseconds of consecutive full steps: the engine's, and the scheduler's turns.

    Without `one_clock` the scheduler's spans are moved so that the soonest result was seen when it was done:
    they may be drawn early by that delay.
    """
    chosen = full_decodes(steps, rows)
    middle = max(0, (len(chosen) - STRIP_STEPS) // 2)
    window = chosen[middle : middle + STRIP_STEPS]
    delay = chosen["seen_ns"].astype(np.int64) - chosen["done_ns"].astype(np.int64)
    shift = 0 if one_clock else int(delay.min())
    origin = int(window["start_ns"][0])

    def spans(first: str, last: str, moved: int) -> list[list[float]]:
        pairs = zip(window[first].tolist(), window[last].tolist(), strict=True)
        return [[(a - moved - origin) / 1e3, (b - moved - origin) / 1e3] for a, b in pairs]

    return {"engine": spans("start_ns", "done_ns", 0), "scheduler": spans("turn_ns", "launched_ns", shift)}
