"""Agents: lanes that hold one session after another. A session is a shared prompt, then turns in which
results of tools or words of a user arrive and are answered, until it ends by itself or its context is full. A
seed decides all of it (B12), a server what is answered.

The numbers describe traces that were published. The traces themselves are not here: their statistics are,
within bounds that let a session of 32,768 tokens have turns.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blink.bench.conversations import THINKING, Waits
from blink.bench.trace import INPUTS, OUTPUTS, Lengths, histogram, lengths

# Random streams, beside those of trace.py, prompts.py and conversations.py
TURNS, WIDTHS, STARTS = 6, 7, 8
SESSIONS = 256  # that are planned; lanes that get through them all take them again, with new prompts

# Tokens of the system prompt and the tools, which all sessions share: this project's assumption. Claude
# Code's subagents were seen with 11,374 (github.com/anthropics/claude-code, issue 82739), and NVIDIA's
# generator of such traces has 32,000 (github.com/ai-dynamo/aiperf, agentic_code_gen/configs/default.json).
PREFIX = 8192
# Tokens that end a session, as the same generator's 167,000 do: this is what most models can take.
CONTEXT = 32_768
# Tokens that arrive in a turn. Median 733; published medians are 710 to 954 behind 32,000 tokens and more
# (tracelab.cs.washington.edu/exp/llm_generation/append_by_prefix_bin, arXiv:2606.30560) and 684
# (silybench's agents). The mean that was published, 1,204 (430.2M fresh tokens in 357,161 steps,
# .../prefix_cache/redundant_prefill), includes a tail (P99s of 8,800 to 50,400) that no session of this
# context could hold.
NEW_TOKENS = Lengths(900, 0.8, 300, 2000)
# Tokens of an answer. Published means are 182 (23,608 requests of tools and agents in the FAST'25 release
# of github.com/kvcache-ai/Mooncake) and 523 (186.9M tokens in 357,161 steps, tracelab.cs.washington.edu).
ANSWERS = Lengths(350, 0.8, 80, 800)
# Turns of a session, if nothing ends it before. P25, P50 and P90 are 5, 15 and 140; published are 4, 15 and
# 135 steps that results of tools began (tracelab.cs.washington.edu/exp/session/session_internal_counts).
SESSION_TURNS = Lengths(45, 1.76, 2, 256)
MOST_TURNS = 4096  # what a plan can have; contexts hold fewer
# Share of turns with 1, 2, 3 and 4 requests side by side: mean 1.19, P90 2, P99 4; published are 1.2, 2 and
# 4 calls of tools in a step (the same table).
WIDTH_SHARES = (0.87, 0.09, 0.02, 0.02)
WIDEST = len(WIDTH_SHARES)
# Where in its first session a lane begins: AgentX starts its lanes between these shares of a trace
# (github.com/SemiAnalysisAI/InferenceX, pull 1393), so that lanes are apart, and contexts long, from the
# beginning.
FIRST_SHARES = (0.25, 0.75)


@dataclass(frozen=True)
class ToolsAndUsers:
    """Seconds between an answer and the next turn: lognormal, of a tool or of a user, never more than the
    cap.

    Medians and P90s are 0.3 s and 13.6 s of tools, and 84 s and 1,236 s of users
    (tracelab.cs.washington.edu/exp/session/session_timing_distribution); of 82.5 turns in a session, tools
    begin 73.6 (.../session_internal_counts). AgentX shortens longer gaps to 10 s
    (github.com/ai-dynamo/aiperf, docs/tutorials/agentx-mvp.md). The mean is then 2.9 s.
    """

    tool_share: float = 0.89
    tool_median_s: float = 0.3
    tool_sigma: float = 2.98
    user_median_s: float = 84.0
    user_sigma: float = 2.1
    cap_s: float = 10.0

    def sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
        """Seconds."""
        tools = rng.lognormal(np.log(self.tool_median_s), self.tool_sigma, shape)
        users = rng.lognormal(np.log(self.user_median_s), self.user_sigma, shape)
        return np.minimum(np.where(rng.random(shape) < self.tool_share, tools, users), self.cap_s)

    def __str__(self) -> str:
        return f"of tools and users, at most {self.cap_s:g}"


TOOLS_AND_USERS = ToolsAndUsers()


@dataclass(frozen=True)
class Session:
    """The turns of one session. A turn has `widths[turn]` requests, which are sent together; they are
    numbered from 0 through the whole session.

    All of a turn's requests have the history so far, and each has something new of its own. The turn has
    ended when all are answered. Then the first one's new tokens and the answers of all belong to the history:
    the others are what subagents do, of which only the result comes back.
    """

    widths: NDArray[np.int64]  # (turns,)
    waits_s: NDArray[np.float64]  # (turns,) before each turn; 0 before the first
    new: NDArray[np.int64]  # (requests,) tokens that arrive with each request
    answers: NDArray[np.int64]  # (requests,) tokens of each answer

    @property
    def turns(self) -> int:
        return len(self.widths)

    def firsts(self) -> NDArray[np.int64]:
        """(turns,) the number of each turn's first request."""
        return np.cumsum(self.widths) - self.widths

    def said(self) -> NDArray[np.int64]:
        """(turns + 1,) tokens of the history before each turn and after the last, shared prompt apart."""
        firsts = self.firsts()
        return np.concatenate([[0], np.cumsum(self.new[firsts] + np.add.reduceat(self.answers, firsts))])

    def contexts(self, prefix: int) -> NDArray[np.int64]:
        """(turns,) tokens of each turn's longest prompt with its answer; `prefix` of them are shared."""
        longest = np.maximum.reduceat(self.new + self.answers, self.firsts())
        return prefix + self.said()[:-1] + longest

    def within(self, context: int, prefix: int) -> Session:
        """The turns before the first one that `context` tokens would not hold."""
        turns = int(np.argmax(np.append(self.contexts(prefix) > context, True)))
        requests = int(self.widths[:turns].sum())
        return Session(
            self.widths[:turns], self.waits_s[:turns], self.new[:requests], self.answers[:requests]
        )


@dataclass(frozen=True)
class Agents:
    """What the lanes of one window do. Lane l holds the sessions l, l + lanes, ...; session s follows the
    plan s % len(plans), with prompts that no other session has.
    """

    lanes: int
    kind: str  # of prompts: one of histories.KINDS
    plans: tuple[Session, ...]
    first_turns: NDArray[np.int64]  # (lanes,) where each lane's first session begins
    starts_s: NDArray[np.float64]  # (lanes,) when each begins
    system_tokens: int
    context: int  # tokens that no prompt exceeds with its answer

    def plan(self, session: int) -> Session:
        return self.plans[session % len(self.plans)]

    @property
    def stride(self) -> int:
        """Numbers of prompts for each session: its requests', and one for what a lane's first session said
        before.
        """
        return max(len(plan.new) for plan in self.plans) + 1

    def digest(self) -> str:
        """Names the workload: two results with the same digest had the same sessions."""
        workload = [self.lanes, self.kind, self.system_tokens, self.context]
        arrays = [self.first_turns, self.starts_s.round(6)]
        for plan in self.plans:
            arrays += [plan.widths, plan.waits_s.round(6), plan.new, plan.answers]
        text = json.dumps([*workload, *(array.tolist() for array in arrays)])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def summary(self) -> dict[str, Any]:
        """As that of a Trace, of all sessions that are planned."""
        new = np.concatenate([plan.new for plan in self.plans])
        return {
            "requests": len(new),
            "sessions": len(self.plans),
            "turns": sum(plan.turns for plan in self.plans),
            "digest": self.digest(),
            "input_tokens": histogram(new),
            "output_tokens": histogram(np.concatenate([plan.answers for plan in self.plans])),
            "context_tokens": histogram(
                np.concatenate([plan.contexts(self.system_tokens) for plan in self.plans])
            ),
            "turns_of_session": histogram(np.array([plan.turns for plan in self.plans])),
        }


def session_turns(text: str) -> Lengths:
    """As `lengths`, up to MOST_TURNS. Raises ValueError."""
    turns = lengths(text)
    if turns.high > MOST_TURNS:
        raise ValueError(f"'{text}': sessions of up to {MOST_TURNS} turns can be planned")
    return turns


def least_context(new: Lengths, answers: Lengths, prefix: int) -> int:
    """Tokens that hold at least one turn of any session."""
    return prefix + new.high + answers.high


def agents(
    lanes: int,
    seed: int,
    new: Lengths,
    answers: Lengths,
    turns: Lengths,
    *,
    kind: str,
    system_tokens: int,
    context: int,
    waits: Waits = TOOLS_AND_USERS,
    stagger_s: float = 0.0,
) -> Agents:
    """The lanes begin evenly spread over `stagger_s`. Sessions do not depend on how many lanes there are.

    Raises ValueError where `context` does not hold a turn.
    """
    if context < least_context(new, answers, system_tokens):
        raise ValueError(f"a context of {context} tokens holds no turn")
    counts = turns.sample(SESSIONS, np.random.default_rng([seed, TURNS]))
    n = int(counts.sum())
    widths = np.random.default_rng([seed, WIDTHS]).choice(np.arange(1, WIDEST + 1), n, p=WIDTH_SHARES)
    waits_s = waits.sample((n,), np.random.default_rng([seed, THINKING]))
    requests = int(widths.sum())
    new_tokens = new.sample(requests, np.random.default_rng([seed, INPUTS]))
    answer_tokens = answers.sample(requests, np.random.default_rng([seed, OUTPUTS]))
    plans: list[Session] = []
    turn = request = 0
    for count in counts.tolist():
        of_turns = slice(turn, turn + count)
        of_requests = slice(request, request + int(widths[of_turns].sum()))
        waits_s[turn] = 0.0
        whole = Session(
            widths[of_turns], waits_s[of_turns], new_tokens[of_requests], answer_tokens[of_requests]
        )
        plans.append(whole.within(context, system_tokens))
        turn, request = of_turns.stop, of_requests.stop
    shares = np.random.default_rng([seed, STARTS]).uniform(*FIRST_SHARES, lanes)
    lengths = np.array([plans[lane % SESSIONS].turns for lane in range(lanes)])
    return Agents(
        lanes,
        kind,
        tuple(plans),
        (shares * lengths).astype(np.int64),
        np.linspace(0.0, stagger_s, lanes, endpoint=False),
        system_tokens,
        context,
    )
