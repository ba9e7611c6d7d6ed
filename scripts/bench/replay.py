"""Launches of a step, replayed as a captured graph."""

from __future__ import annotations

from collections.abc import Sequence

from bench.ceilings import time_us

from gpu_backend.cuda.driver import Stream
from gpu_backend.cuda.graph import Graph
from gpu_backend.engines.native.launcher import StepLauncher
from gpu_backend.ops.candidate import Choice


def replayed_us(
    launcher: StepLauncher,
    stream: Stream,
    plan: Sequence[Choice],
    step_set: bytes,
    before: Sequence[Choice] | None = None,
) -> float:
    """Microseconds of the launches of `plan`, one after the other.

    First `before` is launched once without a capture, or else the plan itself: that measures cuBLAS's
    algorithms, which no capture may.
    """
    launcher.enqueue(plan if before is None else before, step_set)
    stream.synchronize()
    graph = Graph()
    with graph.capture(stream):
        launcher.enqueue(plan, step_set)
    graph.instantiate(stream)
    us = time_us(lambda: graph.launch(stream), stream.synchronize)
    graph.close()
    return us
