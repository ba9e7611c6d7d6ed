"""How long the bursts of makespan.py are going to take, by those that have ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from blink.bench.scheduler_runs import Design, Workload

SPARE = 1.1  # equal bursts differ by some percent
CHANGE_S = 10.0  # to another scheduler, until one has been seen


@dataclass(frozen=True)
class Burst:
    """One that has ended."""

    design: Design
    workload: Workload
    seconds: float
    steps: int

    def scaled(self, design: Design, workload: Workload) -> float:
        """What another one takes at most, if the time is a sum of so much for each token in, for each token
        out, and for each step, and if both schedulers are alike but for the work that their hosts are given.
        A token's own time grows with the context, so a longer one counts for more.
        """
        own = self.workload
        prompts = workload.requests * workload.prompt / (own.requests * own.prompt)
        answers = workload.requests * workload.output / (own.requests * own.output)
        longer = max(prompts, answers) * max(1.0, workload.tokens / own.tokens)
        more_us = max(0, design.host_work_us - self.design.host_work_us)
        return longer * (self.seconds + self.steps * more_us / 1e6)


class BurstTimes:
    """Bursts of one model, machine and batch."""

    def __init__(self) -> None:
        self._bursts: list[Burst] = []
        self._change_s: float | None = None

    def took(self, design: Design, workload: Workload, seconds: float, steps: int) -> None:
        """Also of a warm-up, which is a workload with short answers."""
        self._bursts.append(Burst(design, workload, seconds, steps))

    def changed(self, seconds: float) -> None:
        """From one scheduler to another."""
        self._change_s = max(self._change_s or 0.0, seconds)

    def estimate(self, design: Design, workload: Workload) -> float:
        """The longest of this scheduler and workload; else the least that follows from another workload, by
        the slowest scheduler of each. 0 where no burst has ended: there is nothing to estimate by.
        """
        own = [burst for burst in self._bursts if (burst.design, burst.workload) == (design, workload)]
        if own:
            return SPARE * max(burst.seconds for burst in own)
        slowest: dict[Workload, float] = {}
        for burst in self._bursts:
            seconds = burst.scaled(design, workload)
            slowest[burst.workload] = max(seconds, slowest.get(burst.workload, 0.0))
        return SPARE * min(slowest.values(), default=0.0)

    def to_begin(self, design: Design, warm_up: Workload, workload: Workload) -> float:
        """A change of scheduler, the warm-up, and the first burst."""
        change_s = CHANGE_S if self._change_s is None else SPARE * self._change_s
        return change_s + self.estimate(design, warm_up) + self.estimate(design, workload)


class Deadline:
    """So many minutes from now; None: never."""

    def __init__(self, minutes: float | None, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._end = float("inf") if minutes is None else clock() + 60 * minutes

    def allows(self, seconds: float) -> bool:
        """Whether so much time is left."""
        return self._clock() + seconds <= self._end
