"""The figures of conversations beyond those of requests: first turns and later ones apart, what a server had
kept of their prompts, and what a failure cut off (B11).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from blink.bench.conversations import Conversations
from blink.bench.metrics import summary, tpot_ms, ttft_ms
from blink.bench.records import Outcome


def measure_turns(outcomes: list[Outcome], workload: Conversations) -> dict[str, Any]:
    """Of one window, for its point."""
    good = [o for o in outcomes if o.ok]
    complete = Counter(o.index // workload.turns for o in good)
    tells = any(o.cached_tokens is not None for o in good)
    return {
        "conversations": {
            "planned": len(workload.inputs),
            "complete": sum(turns == workload.turns for turns in complete.values()),
            "broken": len({o.index // workload.turns for o in outcomes if not o.ok}),
            "turns_not_asked": workload.inputs.size - len(outcomes),
        },
        "first_turns": _of([o for o in good if o.turn == 0], tells),
        "later_turns": _of([o for o in good if o.turn], tells),
    }


def _of(good: list[Outcome], tells: bool) -> dict[str, Any]:
    return {
        "requests_complete": len(good),
        "ttft_ms": summary(np.array([ttft_ms(o) for o in good])),
        "tpot_ms": summary(np.array([tpot_ms(o) for o in good if o.tokens > 1])),
        **cached(good, tells),
    }


def cached(good: list[Outcome], tells: bool) -> dict[str, float | None]:
    """What was cached of the prompts. `tells`: the server says what it had kept. Servers that do may leave it
    out where it is nothing.
    """
    prompts = [o.prompt_tokens for o in good if o.prompt_tokens is not None]
    kept = [o.cached_tokens or 0 for o in good if o.prompt_tokens is not None] if tells else []
    return {
        "prompt_tokens_mean": sum(prompts) / len(prompts) if prompts else None,
        "cached_tokens_mean": sum(kept) / len(kept) if kept else None,
        "cached_share": sum(kept) / sum(prompts) if kept else None,
    }
