"""What the load processes are told and what they report; times are CLOCK_MONOTONIC, common to all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blink.bench.agents import Agents
from blink.bench.conversations import Conversations
from blink.bench.trace import Trace


@dataclass(frozen=True)
class Target:
    """Where requests go."""

    host: str
    port: int
    path: str  # of the completions endpoint
    model: str
    api_key: str | None
    ignore_eos: bool = True  # answers have the length that was asked for; else they may end by themselves


@dataclass(frozen=True)
class Order:
    """One measurement for one load process: `trace`'s arrivals, or in a closed loop `streams` at a time."""

    trace: Trace
    first: int  # this process has the requests first, first + step, ...
    step: int
    first_prompt: int  # the number of request 0's prompt: no two windows have the same (B2)
    streams: int | None
    start_ns: int
    window_ns: int  # no request starts after start + window
    drain_ns: int  # what is open then has this long to end


@dataclass(frozen=True)
class ConversationOrder:
    """Conversations for one load process: those of the users first, first + step, ..."""

    workload: Conversations
    first: int
    step: int
    first_prompt: int  # as above: no two windows have the same texts, nor the same system prompt (B2)
    start_ns: int
    limit_ns: int  # no turn starts after start + limit
    drain_ns: int


@dataclass(frozen=True)
class AgentOrder:
    """Agents for one load process: the lanes first, first + step, ..."""

    workload: Agents
    first: int
    step: int
    first_prompt: int  # the shared prompt's number; those of the sessions' texts follow
    start_ns: int
    window_ns: int  # no turn starts after start + window
    drain_ns: int


UNFINISHED = "not finished in time"  # an outcome's error, where it was open when the drain was over

AnyOrder = Order | ConversationOrder | AgentOrder


@dataclass
class Outcome:
    """One request."""

    index: int  # in a conversation: the conversation times the turns, plus the turn; of agents: the
    # session times the stride, plus the request
    stream: int | None  # of a closed loop
    due_ns: int  # when the trace wanted it; in a closed loop, when it was sent
    sent_ns: int
    expected_tokens: int
    stamps: NDArray[np.int64]  # (chunks,) ns: when the read that completed each chunk with tokens returned
    tokens: int  # by the server's `usage`, else one a chunk
    has_usage: bool
    error: str | None  # None: complete
    turn: int | None = None  # of a conversation or a session, from 0
    prompt_tokens: int | None = None  # by the server's `usage`
    cached_tokens: int | None = None  # those of the prompt that the server did not compute, where it tells

    @property
    def ok(self) -> bool:
        return self.error is None


@dataclass(frozen=True)
class Lag:
    """How late a load process was itself: what it adds to what it measures (B5)."""

    loop_late_ms: NDArray[np.float64]  # (ticks,) lateness of a timer of its event loop
    cpu_share: float  # of one core


@dataclass(frozen=True)
class Shard:
    """One process's report."""

    outcomes: list[Outcome]
    lag: Lag
