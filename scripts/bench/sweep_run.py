"""Measures units of a plan until the time is over, whatever the servers are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from bench.sweep_plan import STOP_S, VARIANTS, Block, Point, Unit, batch_for
from bench.sweep_records import FAILED, MEASURED, Results, left, record_of

Clock = Callable[[], float]  # seconds


class Measured(Protocol):
    """A server that runs."""

    def measure(self, point: Point) -> dict[str, Any]:
        """What the record has of the point. Raises SystemExit where it could not be measured."""


class Laboratory(Protocol):
    call: str

    def origin(self) -> dict[str, Any]:
        """What every record of this call has: when, of what, where."""

    def server(self, variant: str, block: Block) -> AbstractContextManager[Measured]:
        """Raises SystemExit where it does not start."""


def run(
    plan: Sequence[Unit], results: Results, laboratory: Laboratory, deadline: float, clock: Clock
) -> None:
    """Until nothing is left that would certainly end before the deadline. No unit is begun twice."""
    begun: list[Unit] = []
    while True:
        rest = [unit for unit in left(plan, results.records) if unit not in begun]
        batch = batch_for(rest, deadline - clock())
        if not batch:
            return
        begun += batch
        for variant in batch[0].block.variants:
            points = [point for unit in batch for point in unit.points if point.key.variant == variant]
            if not _run_server(variant, batch[0].block, points, results, laboratory, deadline, clock):
                return


def _run_server(
    variant: str,
    block: Block,
    points: Sequence[Point],
    results: Results,
    laboratory: Laboratory,
    deadline: float,
    clock: Clock,
) -> bool:
    """Whether there was time for all of the points, failed ones included."""
    latest = deadline - STOP_S
    if clock() + VARIANTS[variant].start_s + points[0].longest_s > latest:
        return False
    waiting = list(points)
    try:
        with laboratory.server(variant, block) as server:
            while waiting:
                if clock() + waiting[0].longest_s > latest:
                    return False
                _measure(server, waiting.pop(0), results, laboratory)
    except SystemExit as failure:  # it did not start
        for point in waiting:
            _append(results, laboratory, point, FAILED, {"reason": str(failure)})
    return True


def _measure(server: Measured, point: Point, results: Results, laboratory: Laboratory) -> None:
    try:
        found = server.measure(point)
    except SystemExit as failure:
        _append(results, laboratory, point, FAILED, {"reason": str(failure)})
    else:
        _append(results, laboratory, point, MEASURED, found)


def _append(
    results: Results, laboratory: Laboratory, point: Point, status: str, found: dict[str, Any]
) -> None:
    results.append(record_of(point.key, laboratory.call, status, laboratory.origin() | found))
