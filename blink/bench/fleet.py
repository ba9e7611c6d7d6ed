"""The load processes, seen from the command: started, ordered, asked for their reports, ended."""

from __future__ import annotations

import dataclasses
import multiprocessing
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection as Pipe
from types import TracebackType

import numpy as np

from blink.bench import load_process
from blink.bench.agents import Agents
from blink.bench.conversations import Conversations
from blink.bench.prompts import Prompts
from blink.bench.records import AgentOrder, ConversationOrder, Lag, Order, Outcome, Shard, Target
from blink.bench.trace import Trace
from blink.errors import CommandError

LEAD_NS = 300_000_000  # between an order and its start
REPORT_S = 120.0  # to read the streams and report them
END_S = 5.0
NS = 1_000_000_000
PROMPTS_A_WINDOW = 10_000_000  # more than any window sends


@dataclass(frozen=True)
class Run:
    """One measurement: its outcomes, and the steady part of its window in ns."""

    outcomes: list[Outcome]
    lags: list[Lag]
    steady_ns: tuple[int, int]


class Fleet:
    """`n` processes with the requests of a trace dealt out among them. A context manager: it ends them."""

    def __init__(self, n: int, target: Target, prompts: Prompts) -> None:
        context = multiprocessing.get_context("spawn")  # forking would copy threads' locks
        self._prompts = 0
        self._members: list[tuple[multiprocessing.process.BaseProcess, Pipe]] = []
        resource_tracker.ensure_running()  # its start would lift the mask
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))  # inherited: the command ends them
        for _ in range(n):
            ours, theirs = context.Pipe()
            process = context.Process(target=load_process.main, args=(theirs, target, prompts), daemon=True)
            process.start()
            theirs.close()  # so that a death over there is an end of file here
            self._members.append((process, ours))
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _, pipe in self._members:
            pipe.close()
        for process, _ in self._members:
            process.join(0 if error else END_S)  # in the middle of a run nobody waits for the rest of it
            if process.is_alive():
                process.kill()
                process.join()

    def run(
        self,
        trace: Trace,
        streams: int | None,
        window_s: float,
        drop: float,
        drain_s: float,
        at_steady: Callable[[], None] = lambda: None,
        at_end: Callable[[], None] = lambda: None,
    ) -> Run:
        """Open loop, or closed with `streams` requests at a time. `drop` is the share of the window before it
        is steady; `at_steady` and `at_end` are called when the steady part begins and ends.

        Raises CommandError when a process died or did not report in time.
        """

        def order(i: int, step: int, start: int, window: int, drain: int) -> Order:
            mine = None if streams is None else len(range(i, streams, step))
            return Order(trace, i, step, self._prompts, mine, start, window, drain)

        most = streams or len(self._members)
        return self._window(most, order, window_s, drop, drain_s, at_steady, at_end)

    def run_agents(
        self,
        workload: Agents,
        window_s: float,
        drop: float,
        drain_s: float,
        at_steady: Callable[[], None] = lambda: None,
        at_end: Callable[[], None] = lambda: None,
    ) -> Run:
        """Agents, in a window like that of `run`. Raises CommandError as `run` does."""

        def order(i: int, step: int, start: int, window: int, drain: int) -> AgentOrder:
            return AgentOrder(workload, i, step, self._prompts, start, window, drain)

        return self._window(workload.lanes, order, window_s, drop, drain_s, at_steady, at_end)

    def _window(
        self,
        most: int,
        order: Callable[[int, int, int, int, int], Order | AgentOrder],
        window_s: float,
        drop: float,
        drain_s: float,
        at_steady: Callable[[], None],
        at_end: Callable[[], None],
    ) -> Run:
        """Of `most` processes or fewer. `order(i, n, start, window, drain)` makes that of process i of n,
        with times in ns.
        """
        pipes = [pipe for _, pipe in self._members[:most]]
        start, window = time.monotonic_ns() + LEAD_NS, int(window_s * NS)
        for i, pipe in enumerate(pipes):
            pipe.send(order(i, len(pipes), start, window, int(drain_s * NS)))
        self._prompts += PROMPTS_A_WINDOW
        steady = (start + int(drop * window), start + window)
        _sleep_until(steady[0])
        at_steady()
        _sleep_until(steady[1])
        at_end()
        return _collected(pipes, drain_s, steady)

    def converse(
        self,
        workload: Conversations,
        limit_s: float,
        drain_s: float,
        at_begin: Callable[[], None] = lambda: None,
        at_end: Callable[[], None] = lambda: None,
    ) -> Run:
        """Conversations, until all have ended; no turn starts after `limit_s`. All of it is steady.

        Raises CommandError as `run` does.
        """
        members = self._members[: min(len(self._members), workload.users)]
        start, step = time.monotonic_ns() + LEAD_NS, len(members)
        for i, (_, pipe) in enumerate(members):
            order = ConversationOrder(
                workload, i, step, self._prompts, start, int(limit_s * NS), int(drain_s * NS)
            )
            pipe.send(order)
        self._prompts += PROMPTS_A_WINDOW
        _sleep_until(start)
        at_begin()
        ran = _collected([pipe for _, pipe in members], limit_s + drain_s, (start, start))
        at_end()  # the answers were read when they came: nothing but the reports is between
        ends = (int(o.stamps[-1]) if len(o.stamps) else o.sent_ns for o in ran.outcomes)
        return dataclasses.replace(ran, steady_ns=(start, max(ends, default=start) + 1))


def _collected(pipes: list[Pipe], within_s: float, steady_ns: tuple[int, int]) -> Run:
    deadline = time.monotonic() + within_s + REPORT_S
    shards = [_report(pipe, deadline) for pipe in pipes]
    outcomes = sorted((o for shard in shards for o in shard.outcomes), key=lambda o: o.sent_ns)
    return Run(outcomes, [shard.lag for shard in shards], steady_ns)


def _report(pipe: Pipe, deadline: float) -> Shard:
    if not pipe.poll(max(0.0, deadline - time.monotonic())):
        raise CommandError("a load process did not report: the machine is overloaded, or --drain too long")
    try:
        shard = pipe.recv()
    except (EOFError, OSError):
        raise CommandError("a load process died; was it killed for its memory?") from None
    assert isinstance(shard, Shard)
    return shard


def _sleep_until(moment_ns: int) -> None:
    time.sleep(max(0.0, (moment_ns - time.monotonic_ns()) / 1e9))


def late_p99_ms(lags: list[Lag]) -> float:
    """Of all processes' event loops."""
    late = np.concatenate([lag.loop_late_ms for lag in lags])
    return float(np.percentile(late, 99)) if len(late) else 0.0
