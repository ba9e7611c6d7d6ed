"""Levels of service that a whole window has to keep: percentiles of its latencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from blink.bench.metrics import PERCENTILES

LATENCIES = ("ttft", "tpot", "itl")


@dataclass(frozen=True)
class Level:
    """`latency` is one of LATENCIES, `percentile` one of PERCENTILES."""

    latency: str
    percentile: str
    bound_ms: float

    def __str__(self) -> str:
        return f"{self.latency}:{self.percentile}:{self.bound_ms:g}"

    def kept(self, point: dict[str, Any]) -> bool:
        """Of a window's point. One in which no request was complete keeps nothing."""
        values = point[f"{self.latency}_ms"]
        return values is not None and values[self.percentile] <= self.bound_ms


def levels(text: str) -> tuple[Level, ...]:
    """Of "ttft:p99:2000 itl:p50:50". Raises ValueError."""
    return tuple(_level(part) for part in text.split())


def _level(text: str) -> Level:
    latency, _, rest = text.partition(":")
    percentile, _, bound = rest.partition(":")
    if latency not in LATENCIES or percentile not in PERCENTILES:
        known = f"{', '.join(LATENCIES)}, and {', '.join(PERCENTILES)}"
        raise ValueError(f"'{text}' is no level: write for example ttft:p99:2000, with one of {known}")
    try:
        return Level(latency, percentile, float(bound))
    except ValueError:
        raise ValueError(f"'{text}': '{bound}' is not a time in milliseconds") from None


def judged(point: dict[str, Any], wanted: tuple[Level, ...]) -> dict[str, bool]:
    """Of each level, whether the window kept it. A failed request makes a window that keeps none."""
    has_failed = bool(point["requests_failed"])
    return {str(level): not has_failed and level.kept(point) for level in wanted}
