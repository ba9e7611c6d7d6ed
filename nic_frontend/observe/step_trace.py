"""The steps of a window of time as a Chrome trace, which chrome://tracing and ui.perfetto.dev show.

The scheduler leaves the times of its last SHOWN_STEPS steps in the ring's header (statistics.h). Reading them
again and again costs it nothing, so a trace may be taken of a server that works.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

from nic_frontend.errors import ApiError, bad_request
from nic_frontend.observe.exposition import Seen
from nic_frontend.observe.live import shown_steps
from ringbuffer.version import version

LOOK_S = 0.01  # 64 steps of a small model take three times as long
LONGEST_S = 60.0
MOST_STEPS = 100_000  # some 20 MB of JSON
GAUGES = {"requests": ("running", "waiting"), "KV pages": ("free_pages", "cached_pages")}
STEPS = {"pid": 1, "tid": 1}


class StepTrace:
    """Takes one trace at a time. `look` reads the ring's header."""

    def __init__(self, look: Callable[[], Awaitable[Seen]]) -> None:
        self._look = look
        self._taking = asyncio.Lock()

    async def take(self, seconds: float) -> dict[str, Any]:
        """The trace of the next `seconds`. Raises ApiError 400 for no such time, 409 while one is taken."""
        if not 0 < seconds <= LONGEST_S:
            raise bad_request(
                f"'seconds' is {seconds:g}, it must be above 0 and at most {LONGEST_S:g}", "seconds"
            )
        if self._taking.locked():
            raise ApiError(
                409, "a trace is being taken; try again when it has ended", code="trace_in_progress"
            )
        async with self._taking:
            return await self._take(seconds)

    async def _take(self, seconds: float) -> dict[str, Any]:
        steps: dict[int, dict[str, int]] = {}
        gauges: list[dict[str, Any]] = []
        first = max((step["id"] for step in shown_steps((await self._look()).header["steps"])), default=0)
        ends = time.monotonic() + seconds
        while len(steps) < MOST_STEPS and (left := ends - time.monotonic()) > 0:
            await asyncio.sleep(min(LOOK_S, left))
            header = (await self._look()).header
            before = len(steps)
            steps |= {step["id"]: step for step in shown_steps(header["steps"]) if step["id"] > first}
            if len(steps) > before:
                at = max(step["start_ns"] + step["ns"] for step in steps.values())
                gauges += _gauges(at, header)
        return _trace([steps[number] for number in sorted(steps)], gauges, full=len(steps) >= MOST_STEPS)


def _trace(steps: list[dict[str, int]], gauges: list[dict[str, Any]], *, full: bool) -> dict[str, Any]:
    missed = sum(after["id"] - before["id"] - 1 for before, after in pairwise(steps))
    ends = [None, *(step["start_ns"] + step["ns"] for step in steps)]
    events = [_event(step, end) for step, end in zip(steps, ends, strict=False)]
    names = [("process_name", "blink"), ("thread_name", "steps")]
    about = [{"name": name, "ph": "M", **STEPS, "args": {"name": value}} for name, value in names]
    told = {"version": version(), "steps": len(steps), "missed_steps": missed, "full": full}
    return {"traceEvents": [*about, *events, *gauges], "displayTimeUnit": "ms", "otherData": told}


def _event(step: dict[str, int], previous_end: int | None) -> dict[str, Any]:
    """A complete event; times are in microseconds."""
    prompts, decoding = step["prompt_tokens"], step["decoding"]
    kinds = [*(["prompts"] if prompts else []), *(["decode"] if decoding else [])]
    args = {"step": step["id"], "prompt_tokens": prompts, "decoding": decoding}
    if previous_end is not None:
        args["gap_us"] = round((step["start_ns"] - previous_end) / 1000, 3)  # type: ignore[assignment]
    times = {"ts": step["start_ns"] / 1000, "dur": step["ns"] / 1000}
    return {"name": " + ".join(kinds) or "step", "ph": "X", **STEPS, **times, "args": args}


def _gauges(at_ns: int, header: Any) -> list[dict[str, Any]]:
    """Counter events of what the header says, at the end of the newest step."""
    stats = header["stats"]
    return [
        {
            "name": title,
            "ph": "C",
            "pid": 1,
            "ts": at_ns / 1000,
            "args": {name: int(stats[name]) for name in names},
        }
        for title, names in GAUGES.items()
    ]
