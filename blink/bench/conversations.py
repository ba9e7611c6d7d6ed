"""Conversations: users who ask, read the answer, think, and ask again with all of that as the prompt. A seed
decides their lengths and times (B1), a server what is answered.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from blink.bench.trace import INPUTS, OUTPUTS, Lengths, histogram

THINKING = 5  # its random stream, beside those of trace.py and prompts.py
EXPONENTIAL = "exp:"
MOST_THINKING_S = 86_400.0


class Waits(Protocol):
    """Times between an answer and what is asked next."""

    def sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
        """Seconds."""
        ...


@dataclass(frozen=True)
class Think:
    """Time between the end of an answer and the next question: always `mean_s`, or exponential."""

    mean_s: float
    is_exponential: bool = False

    def sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
        """Seconds."""
        return rng.exponential(self.mean_s, shape) if self.is_exponential else np.full(shape, self.mean_s)

    def __str__(self) -> str:
        return f"{EXPONENTIAL if self.is_exponential else ''}{self.mean_s:g}"


NO_THINKING = Think(0.0)


def think(text: str) -> Think:
    """Of "2", or of "exp:2" for exponential times with the mean 2 s. Raises ValueError."""
    try:
        mean_s = float(text.removeprefix(EXPONENTIAL))
    except ValueError:
        raise ValueError(f"'{text}' is no time to think; write SECONDS, or exp:SECONDS") from None
    if not 0 <= mean_s <= MOST_THINKING_S:
        raise ValueError(f"'{text}' is no time to think of at least 0 s and at most a day")
    return Think(mean_s, text.startswith(EXPONENTIAL))


@dataclass(frozen=True)
class Conversations:
    """What the users of one window do. Conversation c is held by user c % users."""

    users: int
    kind: str  # of prompts: one of histories.KINDS
    inputs: NDArray[np.int64]  # (conversations, turns) tokens of questions
    outputs: NDArray[np.int64]  # likewise, of answers
    think_s: NDArray[np.float64]  # likewise, before each question; 0 before a conversation's first
    starts_s: NDArray[np.float64]  # (users,) when each begins
    system_tokens: int
    system_prompts: int  # different ones; conversation c has number c % system_prompts

    @property
    def turns(self) -> int:
        return int(self.inputs.shape[1])

    def of_user(self, user: int) -> Iterator[int]:
        return iter(range(user, len(self.inputs), self.users))

    def digest(self) -> str:
        """Names the workload: two results with the same digest had the same questions at the same times."""
        workload = [self.users, self.kind, self.system_tokens, self.system_prompts]
        arrays = (self.inputs, self.outputs, self.think_s.round(6), self.starts_s.round(6))
        text = json.dumps([*workload, *(array.tolist() for array in arrays)])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def summary(self) -> dict[str, Any]:
        """As that of a Trace."""
        return {
            "requests": self.inputs.size,
            "conversations": len(self.inputs),
            "turns": self.turns,
            "digest": self.digest(),
            "input_tokens": histogram(self.inputs),
            "output_tokens": histogram(self.outputs),
        }


def conversations(
    users: int,
    each: int,
    turns: int,
    seed: int,
    inputs: Lengths,
    outputs: Lengths,
    *,
    kind: str,
    system_tokens: int,
    system_prompts: int = 1,
    think: Waits = NO_THINKING,
    stagger_s: float = 0.0,
) -> Conversations:
    """`each` conversations for each user, one after the other. The users begin evenly spread over
    `stagger_s`.
    """
    shape = (users * each, turns)
    n = users * each * turns
    think_s = think.sample(shape, np.random.default_rng([seed, THINKING]))
    think_s[:, 0] = 0.0
    return Conversations(
        users,
        kind,
        inputs.sample(n, np.random.default_rng([seed, INPUTS])).reshape(shape),
        outputs.sample(n, np.random.default_rng([seed, OUTPUTS])).reshape(shape),
        think_s,
        np.linspace(0.0, stagger_s, users, endpoint=False),
        system_tokens,
        system_prompts,
    )
