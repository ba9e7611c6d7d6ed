"""The steps of a window of time as a Chrome trace, which chrome://tracing and ui.perfetto.dev show.

The scheduler leaves the times of its last SHOWN_STEPS steps in the ring's header (statistics.h). Reading them
again and again costs it nothing, so a trace may be taken of a server that works.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from nic_frontend.errors import ApiError, bad_request
from nic_frontend.http.long_json import Batches
from nic_frontend.observe.exposition import Seen
from nic_frontend.observe.live import shown_steps
from ringbuffer.version import version

LOOK_S = 0.01  # 64 steps of a small model take three times as long
LONGEST_S = 60.0
MOST_STEPS = 100_000  # some 20 MB of JSON
GAUGES = {"requests": ("running", "waiting"), "KV pages": ("free_pages", "cached_pages")}
STEPS = {"pid": 1, "tid": 1}
BATCH = 500  # events that are written without a turn for others

Step = dict[str, int]  # of shown_steps


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
        steps: dict[int, Step] = {}
        gauges: list[dict[str, Any]] = []
        first = max((step["id"] for step in shown_steps((await self._look()).header["steps"])), default=0)
        ends = time.monotonic() + seconds
        while len(steps) < MOST_STEPS and (left := ends - time.monotonic()) > 0:
            await asyncio.sleep(min(LOOK_S, left))
            header = (await self._look()).header
            shown = shown_steps(header["steps"])
            new = {step["id"]: step for step in shown if step["id"] > first and step["id"] not in steps}
            if new:
                steps |= new
                gauges += _gauges(max(step["start_ns"] + step["ns"] for step in new.values()), header)
        return trace_of(steps, gauges, full=len(steps) >= MOST_STEPS)


def trace_of(steps: dict[int, Step], gauges: list[dict[str, Any]], *, full: bool) -> dict[str, Any]:
    """For `respond_json`. Events are made in batches as they are sent, with turns for others between them."""
    numbers = sorted(steps)
    missed = numbers[-1] - numbers[0] + 1 - len(numbers) if numbers else 0
    names = [("process_name", "blink"), ("thread_name", "steps")]
    about = [{"name": name, "ph": "M", **STEPS, "args": {"name": value}} for name, value in names]
    told = {"version": version(), "steps": len(steps), "missed_steps": missed, "full": full}

    def made() -> Iterator[list[dict[str, Any]]]:
        yield about
        for at in range(0, len(numbers), BATCH):
            some = numbers[at : at + BATCH]
            before = [numbers[at - 1] if at else None, *some]
            yield [
                _event(steps[number], steps.get(last or 0))
                for number, last in zip(some, before, strict=False)
            ]
        for at in range(0, len(gauges), BATCH):
            yield gauges[at : at + BATCH]

    return {"traceEvents": Batches(made), "displayTimeUnit": "ms", "otherData": told}


def _event(step: Step, before: Step | None) -> dict[str, Any]:
    """A complete event; times are in microseconds."""
    prompts, decoding = step["prompt_tokens"], step["decoding"]
    kinds = [*(["prompts"] if prompts else []), *(["decode"] if decoding else [])]
    args: dict[str, float] = {"step": step["id"], "prompt_tokens": prompts, "decoding": decoding}
    if before is not None:
        args["gap_us"] = round((step["start_ns"] - before["start_ns"] - before["ns"]) / 1000, 3)
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
