"""Prompts as random tokens, already in JSON: no server's tokenizer is in the measurement. Or as random words,
for servers and endpoints that take text.
"""

from __future__ import annotations

import json

import numpy as np

from blink.bench.words import WORDS

POOL = 1 << 18  # tokens
MAX_PROMPT = POOL // 2 - 1  # leaves prompts room to begin at different places
UNIQUE = 4  # leading tokens that number the prompt
WORDS_RANGE = (0, len(WORDS))


class Prompts:
    """`ids(i, n)` are n tokens in [low, high) as JSON, with commas between them, without brackets.

    Rendering is a slice of a pool, because it happens while streams are being timed. The first tokens spell
    the number i, so that no two prompts have a common prefix that a server could have kept (B2). The slices
    of prompts that run together begin at random places: greedy answers to alike prompts would be alike, and
    a mixture of experts would read few of its weights.
    """

    def __init__(self, seed: int, low: int, high: int) -> None:
        if not 0 <= low < high - 1:
            raise ValueError(f"the range of tokens {low}-{high} needs at least two of them")
        rng = np.random.default_rng([seed, 4])
        words = [f"{token}," for token in rng.integers(low, high, POOL).tolist()]
        self._low, self._base = low, high - low
        self._text = "".join(words)
        self._starts = np.cumsum([0, *map(len, words)])
        self._offsets = rng.integers(0, POOL, 1021).tolist()

    def ids(self, index: int, n: int) -> str:
        if not 1 <= n <= MAX_PROMPT:
            raise ValueError(f"a prompt of {n} tokens; from 1 to {MAX_PROMPT} can be made")
        first = self._offsets[(index + n) % len(self._offsets)] % (POOL - n)
        digits = []
        for _ in range(min(UNIQUE, n)):
            index, digit = divmod(index, self._base)
            digits.append(f"{self._low + digit},")
        body = self._text[self._starts[first] : self._starts[first + n - len(digits)]]
        return f"{''.join(digits)}{body}"[:-1]

    def words(self, index: int, n: int) -> str:
        """n words with spaces between them. Prompts of words are those over WORDS_RANGE."""
        return " ".join(WORDS[token] for token in json.loads(f"[{self.ids(index, n)}]"))
