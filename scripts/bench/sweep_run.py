"""Measures units of a plan until the time is over, whatever the servers are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from bench.sweep_plan import STOP_S, Block, Point, Unit, batch_for
from bench.sweep_records import FAILED, LATE, MEASURED, Results, left, record_of
from bench.sweep_starts import Starts

Clock = Callable[[], float]  # seconds


class Measured(Protocol):
    """A server that runs."""

    def measure(self, point: Point) -> dict[str, Any]:
        """What the record has of the point. Raises SystemExit where it could not be measured."""

    def ended(self) -> str | None:
        """How it ended; None while it serves."""


class Laboratory(Protocol):
    call: str

    def origin(self) -> dict[str, Any]:
        """What every record of this call has: when, of what, where."""

    def server(self, variant: str, block: Block, within_s: float) -> AbstractContextManager[Measured]:
        """Raises SystemExit where it does not start, or not within so many seconds."""


def run(plan: Sequence[Unit], results: Results, laboratory: Laboratory, deadline: float, clock: Clock) -> int:
    """Until nothing is left that is planned to end before the deadline. No unit is begun twice. Returns how
    many were begun.
    """
    call = _Call(results, laboratory, deadline - STOP_S, clock)
    begun: list[Unit] = []
    while True:
        rest = [unit for unit in left(plan, results.records) if unit not in begun]
        batch = batch_for(rest, deadline - clock(), Starts(results.records).of_block)
        if not batch:
            return len(begun)
        begun += batch
        call.measure(batch)


class _Call:
    """`latest`: when a server has to be stopped."""

    def __init__(self, results: Results, laboratory: Laboratory, latest: float, clock: Clock) -> None:
        self._results, self._laboratory, self._latest, self._clock = results, laboratory, latest, clock

    def measure(self, batch: Sequence[Unit]) -> None:
        """Units of one block. What one server could not be asked for is not asked of those behind it."""
        going = list(batch)
        block = batch[0].block
        for variant in block.variants:
            points = [point for unit in going for point in unit.points if point.key.variant == variant]
            if points:
                unasked = self._of_server(variant, block, points)
                going = [unit for unit in going if unasked.isdisjoint(unit.points)]

    def _of_server(self, variant: str, block: Block, points: Sequence[Point]) -> set[Point]:
        """Those that it could not be asked for: the time was over, or it had ended."""
        waiting = list(points)
        began = self._clock()
        planned_s = Starts(self._results.records).of(variant, block.model)
        if planned_s + points[0].longest_s > self._left():
            return self._late(waiting, "before it could start", None)
        try:
            with self._laboratory.server(variant, block, self._left()) as server:
                start_s = self._clock() - began
                while waiting:
                    if waiting[0].longest_s > self._left():
                        return self._late(waiting, f"its start took {start_s:.0f} s", start_s)
                    if not self._point(server, waiting.pop(0)):
                        return set(waiting)
        except SystemExit as failure:  # it did not start
            if self._left() <= 0:
                took_s = self._clock() - began
                return self._late(waiting, f"it had not started after {took_s:.0f} s", took_s)
            for point in waiting:
                self._append(point, FAILED, {"reason": str(failure)})
        return set()

    def _point(self, server: Measured, point: Point) -> bool:
        """Whether the server still serves. A window in which it ended is none, whatever was written of it."""
        status, found = MEASURED, {}
        try:
            found = server.measure(point)
        except SystemExit as failure:
            status, found = FAILED, {"reason": str(failure)}
        how = server.ended()
        if how is not None:
            status, found = FAILED, {"reason": how}
        self._append(point, status, found)
        return how is None

    def _late(self, points: Sequence[Point], why: str, start_s: float | None) -> set[Point]:
        """That there was no time for them. A later call plans with `start_s`."""
        server = {} if start_s is None else {"server": {"start_s": start_s}}
        for point in points:
            self._append(point, LATE, {"reason": f"the time was over: {why}"} | server)
        return set(points)

    def _left(self) -> float:
        return self._latest - self._clock()

    def _append(self, point: Point, status: str, found: dict[str, Any]) -> None:
        call = self._laboratory.call
        self._results.append(record_of(point.key, call, status, self._laboratory.origin() | found))
