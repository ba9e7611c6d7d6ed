"""Figures of a sweep's records over the load: repeats averaged, servers paired by the run that measured
both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.saturation import Throughput
from bench.sweep_plan import ISOLATED, SWEEP
from bench.sweep_records import MEASURED, Record

from blink.bench.metrics import PERCENTILES, geometric_mean, serviceable
from blink.bench.records import UNFINISHED

LEAST_N = {"p99.9": 1000}  # of values, for a percentile to be told
OF_REQUESTS = ("ttft", "tpot")  # they have a value a request; itl has one a gap
Figure = Callable[[Record], float | None]  # of one point


def latency(name: str, statistic: str) -> Figure:
    """Milliseconds of `name`, ttft, tpot or itl. None where there are too few values. A percentile of
    requests is of all requests, and infinite where it would be of one that was not completed (B6 in
    blink/bench/README.md). Means and gaps are those of complete requests.
    """
    is_of_all = name in OF_REQUESTS and statistic in PERCENTILES
    key = f"{name}_of_all_ms" if is_of_all else f"{name}_ms"

    def figure(record: Record) -> float | None:
        summary = record["point"][key]
        if summary is None or summary["n"] < LEAST_N.get(statistic, 1):
            return None
        return math.inf if summary[statistic] is None else float(summary[statistic])

    return figure


def rate(name: str) -> Figure:
    """Something a second, as the point has it."""

    def figure(record: Record) -> float | None:
        value = record["point"][name]
        return None if value is None else float(value)

    return figure


def joules(record: Record) -> float | None:
    """A token, the GPU's alone."""
    energy = record["point"].get("energy")
    return energy and energy["joules_per_token"]


def joules_without_idle(record: Record) -> float | None:
    """A token, without what the GPU draws while it does nothing."""
    with_idle, idle = joules(record), record["idle_watts"]
    if with_idle is None or idle is None:
        return None
    return float(with_idle * (1.0 - idle / record["point"]["energy"]["mean_watts"]))


def cpu_seconds(record: Record) -> float | None:
    """Of the server's processes, per 1,000 tokens."""
    cpu = record["point"]["cpu"].get("server")
    return cpu and cpu["seconds_per_thousand_tokens"]


def unfinished(record: Record) -> int:
    return int(record["point"]["failures"].get(UNFINISHED, 0))


def of(
    records: Iterable[Record],
    model: str,
    variant: str,
    part: str = SWEEP,
    condition: str = ISOLATED,
) -> dict[float, list[Record]]:
    """Measured points by rate, ascending."""
    wanted: dict[str, Any] = {
        "model": model,
        "variant": variant,
        "part": part,
        "condition": condition,
        "status": MEASURED,
    }
    found: dict[float, list[Record]] = {}
    for record in records:
        if all(record[name] == value for name, value in wanted.items()):
            found.setdefault(record["rate"], []).append(record)
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class Pair:
    """Points of two servers, or of one in two conditions, at one rate."""

    first: list[Record]
    second: list[Record]
    is_of_one_run: bool  # else they may be of two cards


def pair(first: Sequence[Record], second: Sequence[Record]) -> Pair:
    """Of the runs that measured both, where there is one."""
    common = {record["call"] for record in first} & {record["call"] for record in second}
    if not common:
        return Pair(list(first), list(second), False)
    return Pair(
        [record for record in first if record["call"] in common],
        [record for record in second if record["call"] in common],
        True,
    )


def common(first: dict[float, list[Record]], second: dict[float, list[Record]]) -> dict[float, Pair]:
    """By the rates that both have; where one run measured both at some of them, by those."""
    pairs = {each: pair(first[each], second[each]) for each in first if each in second}
    return {each: both for each, both in pairs.items() if both.is_of_one_run} or pairs


def mean(records: Sequence[Record], figure: Figure) -> float | None:
    """Over repeats; None where one has no such figure."""
    values = [value for record in records if (value := figure(record)) is not None]
    return sum(values) / len(values) if records and len(values) == len(records) else None


@dataclass(frozen=True)
class Compared:
    """Geometric means over the rates that have a figure for both."""

    first: float
    second: float
    rates: tuple[float, ...]
    is_of_one_run: bool  # at every rate

    @property
    def ratio(self) -> float | None:
        """None unless both are finite."""
        return None if math.isinf(self.first) or math.isinf(self.second) else self.first / self.second


def compared(
    first: dict[float, list[Record]],
    second: dict[float, list[Record]],
    figure: Figure,
    rates: Iterable[float],
) -> Compared | None:
    """None where no rate has both. A mean of values with a zero among them is zero."""
    values = []
    for each in rates:
        both = pair(first.get(each, []), second.get(each, []))
        a, b = mean(both.first, figure), mean(both.second, figure)
        if a is not None and b:
            values.append((each, a, b, both.is_of_one_run))
    if not values:
        return None
    used, of_first, of_second, together = zip(*values, strict=True)
    mean_of_first = geometric_mean(list(of_first)) if all(of_first) else 0.0
    return Compared(mean_of_first, geometric_mean(list(of_second)), used, all(together))


def throughput(points: dict[float, list[Record]]) -> dict[float, Throughput]:
    """Repeats averaged, by nominal rate."""
    found = {}
    for each, records in points.items():
        offered, completed = mean(records, rate("offered_per_s")), mean(records, rate("completed_per_s"))
        assert offered is not None
        assert completed is not None
        found[each] = Throughput(offered, completed)
    return found


def serviceable_load(points: dict[float, list[Record]]) -> float | None:
    """The nominal rate (SERVICEABLE_RULE), of repeats' means; None where no rate was served."""
    return serviceable(
        [
            {"rate": each, "offered_per_s": found.offered, "completed_per_s": found.completed}
            for each, found in throughput(points).items()
        ]
    )
