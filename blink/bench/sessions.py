"""The figures of agents beyond those of requests: AgentX's score, what was cached, and how many turns and
sessions were completed (B12).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from blink.bench.agents import Agents
from blink.bench.metrics import tpot_with_first_ms
from blink.bench.records import Outcome
from blink.bench.turns import cached

SCORE_PERCENTILE = 90.0  # AgentX: 1 / P90 of (end-to-end latency / output tokens)


def score(outcomes: list[Outcome]) -> dict[str, Any]:
    """Of complete requests: the score in tokens/s, and the P90 in ms that it is the inverse of; None without
    any requests.
    """
    if not outcomes:
        return {"score_tokens_per_s": None, "e2e_per_token_p90_ms": None}
    per_token_ms = [tpot_with_first_ms(o) for o in outcomes]
    p90_ms = float(np.percentile(per_token_ms, SCORE_PERCENTILE))
    return {"score_tokens_per_s": 1e3 / p90_ms, "e2e_per_token_p90_ms": p90_ms}


def measure_sessions(outcomes: list[Outcome], workload: Agents, steady_ns: tuple[int, int]) -> dict[str, Any]:
    """Of one window, for its point. Turns and sessions count where their last answer ended in its steady
    part, also a lane's first session, which began in the middle.
    """
    begin, end = steady_ns
    good = [o for o in outcomes if o.ok and begin <= o.due_ns < end]
    answered: Counter[tuple[int, int]] = Counter()
    ended_ns: dict[tuple[int, int], int] = {}
    for o in outcomes:
        if o.ok and o.turn is not None:
            turn = (o.index // workload.stride, o.turn)
            answered[turn] += 1
            ended_ns[turn] = max(ended_ns.get(turn, 0), int(o.stamps[-1]))
    complete = [
        (session, turn)
        for (session, turn), n in answered.items()
        if n == workload.plan(session).widths[turn] and begin <= ended_ns[session, turn] < end
    ]
    tells = any(o.cached_tokens is not None for o in good)
    return {
        "agents": {
            **score(good),
            "turns_complete": len(complete),
            "turns_of_several_requests": sum(
                int(workload.plan(session).widths[turn]) > 1 for session, turn in complete
            ),
            "sessions_complete": sum(turn + 1 == workload.plan(session).turns for session, turn in complete),
            "sessions_broken": len({o.index // workload.stride for o in outcomes if not o.ok}),
            "longest_prompt": max((o.prompt_tokens or 0 for o in good), default=0),
            **cached(good, tells),
        }
    }
