"""The loads that the options ask for, one a window."""

from __future__ import annotations

from dataclasses import dataclass

from blink.bench.agents import Agents, agents
from blink.bench.conversations import Conversations, conversations
from blink.bench.options import ServeOptions
from blink.bench.trace import Trace, endless, load_label, poisson

CLOSED_LOOP_REQUESTS = 512  # of the trace that a closed loop takes again and again, with new prompts


@dataclass(frozen=True)
class Load:
    """An open loop has a rate; a closed one, conversations and agents have a number of streams, users or
    lanes.
    """

    work: Trace | Conversations | Agents
    rate: float | None  # requests/s
    concurrency: int | None  # most requests open at a time

    @property
    def label(self) -> str:
        """Names it in results and on terminals."""
        if isinstance(self.work, Conversations):
            return f"{self.concurrency} users"
        if isinstance(self.work, Agents):
            return f"{self.concurrency} lanes"
        return load_label(self.rate, self.concurrency)


def loads(options: ServeOptions) -> list[Load]:
    o = options
    found = [
        Load(poisson(rate, o.duration_s, o.seed, o.input, o.output), rate, None) for rate in o.rate or ()
    ]
    closed = endless(CLOSED_LOOP_REQUESTS, o.seed, o.input, o.output)
    found += [Load(closed, None, streams) for streams in o.concurrency or ()]
    users = o.conversations or ()
    each = o.each * len(users) if len(o.each) == 1 else o.each
    found += [
        Load(_workload(o, n, k, o.turns, o.seed, o.stagger_s), None, n)
        for n, k in zip(users, each, strict=True)
    ]
    return found + [Load(_agents(o, n, o.seed, o.stagger_s), None, n) for n in o.agents or ()]


def warm_up(options: ServeOptions) -> Trace | Conversations | Agents:
    """Requests of their own that are sent at once; of conversations, two turns at most; of agents, one."""
    o = options
    if o.conversations:
        return _workload(o, users=o.warmup, each=1, turns=min(2, o.turns), seed=o.seed + 1, stagger_s=0.0)
    if o.agents:
        return _agents(o, lanes=o.warmup, seed=o.seed + 1, stagger_s=0.0)
    return endless(o.warmup, o.seed + 1, o.input, o.output)


def _agents(options: ServeOptions, lanes: int, seed: int, stagger_s: float) -> Agents:
    o = options
    return agents(
        lanes,
        seed,
        o.input,
        o.output,
        o.session_turns,
        kind=o.prompts,
        system_tokens=o.system,
        context=o.context,
        waits=o.think,
        stagger_s=stagger_s,
    )


def _workload(
    options: ServeOptions, users: int, each: int, turns: int, seed: int, stagger_s: float
) -> Conversations:
    o = options
    return conversations(
        users,
        each,
        turns,
        seed,
        o.input,
        o.output,
        kind=o.prompts,
        system_tokens=o.system,
        system_prompts=o.system_prompts,
        think=o.think,
        stagger_s=stagger_s,
    )
