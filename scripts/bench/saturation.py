"""Where a server saturates: throughput over the offered load as two segments, growth and then a plateau, as
in section 6.2 of the Blink paper.

The paper does not say how its two segments are fitted. Here the curve is min(slope x load, plateau), so the
segments meet, and slope and plateau are those of the smallest sum of squared differences. For each number of
loads on the first segment, the slope is that of least squares through the origin, and the plateau is the
mean of the others; the best of these curves, over all loads, is the fit. The saturation point is where its
segments meet, and the operating range consists of the measured loads up to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RETAINED = 0.95  # a last load that keeps so much of the growth before it is no plateau
MEETING = 1.01  # a load so little above the saturation point is at it

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Throughput:
    """At one nominal load, requests/s: as many as arrived, and as many as were completed."""

    offered: float
    completed: float


@dataclass(frozen=True)
class Saturation:
    slope: float  # completed by offered, on the first segment
    plateau: float | None  # completed requests/s; None where no measured load saturates the server
    offered: dict[float, float]  # by nominal load, ascending

    @property
    def point(self) -> float | None:
        """Where the segments meet, requests/s."""
        return None if self.plateau is None else self.plateau / self.slope

    @property
    def operating_range(self) -> tuple[float, ...]:
        """Nominal loads up to the saturation point; at least the lowest."""
        loads = tuple(self.offered)
        if self.point is None:
            return loads
        return tuple(load for load in loads if self.offered[load] <= MEETING * self.point) or loads[:1]


def fitted(curve: dict[float, Throughput]) -> Saturation:
    """Of throughput by nominal load. Raises ValueError for fewer than two loads."""
    if len(curve) < 2:
        raise ValueError("two segments need two loads at least")
    points = [curve[load] for load in sorted(curve)]
    offered = {load: curve[load].offered for load in sorted(curve)}
    x = np.array([point.offered for point in points])
    y = np.array([point.completed for point in points])
    if y[-1] >= RETAINED * _slope(x[:-1], y[:-1]) * x[-1]:
        return Saturation(_slope(x, y), None, offered)
    curves = [(_slope(x[:n], y[:n]), float(y[n:].mean())) for n in range(1, len(points))]
    slope, plateau = min(curves, key=lambda curve: _error(x, y, *curve))
    return Saturation(slope, plateau, offered)


def _slope(x: Values, y: Values) -> float:
    return float(x @ y / (x @ x))


def _error(x: Values, y: Values, slope: float, plateau: float) -> float:
    return float(np.sum((np.minimum(slope * x, plateau) - y) ** 2))
