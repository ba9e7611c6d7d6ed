"""Steps whose sequences are held to grammars: arrays for the sampler's reference and kernel, and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from reference_ops import StepData

from gpu_backend.engines.vocabulary import vocabulary_arrays
from ringbuffer.grammar import Grammar, Walk
from ringbuffer.grammar_abi import GrammarState

Rng = np.random.Generator
PIECES = [b'"', b"\\", b"\n", b" ", b"a", b"b", b"c", b"1", b"7", b"{", b"}", b"[", b"]", b":", b",", b"ab"]
PIECES += ["é".encode(), "漢".encode(), "😀".encode(), b"\xc3", b"\xa9", b"\xf0\x9f", b"\xff"]


def random_vocabulary(size: int, rng: Rng) -> list[bytes]:
    """Tokens that begin alike, are no text by themselves, are equal, are long, or have no bytes."""
    table: list[bytes] = []
    for _ in range(size):
        kind = rng.random()
        begin = table[rng.integers(len(table))] if table and kind < 0.6 else b""
        token = begin[:60] + b"".join(PIECES[i] for i in rng.integers(0, len(PIECES), rng.integers(1, 4)))
        if kind > 0.97:
            token = b"a" * int(rng.integers(100, 300))
        table.append(b"" if kind > 0.93 and kind < 0.97 else token)
    return table


@dataclass
class Held:
    """A sequence's answer so far under its grammar; None: it has none."""

    grammar: Grammar | None
    answer: list[int] = field(default_factory=list)


def allowed(walk: Walk, table: Sequence[bytes]) -> list[int]:
    """Tokens that may come next, by walking through each."""
    return [token for token, raw in enumerate(table) if raw and walk.copy().step_all(raw)]


def walked(held: Held, table: Sequence[bytes], n: int) -> Walk:
    """Where the answer's first `n` tokens lead."""
    assert held.grammar is not None
    walk = Walk(held.grammar)
    for token in held.answer[:n]:
        walk.step_all(table[token])
    return walk


def extend(held: Held, table: Sequence[bytes], n: int, rng: Rng) -> None:
    """Up to `n` tokens more, at random."""
    for _ in range(n):
        if held.grammar is None:
            held.answer.append(int(rng.integers(len(table))))
            continue
        choices = allowed(walked(held, table, len(held.answer)), table)
        if not choices:
            return
        held.answer.append(int(rng.choice(choices)))


class HeldStep(StepData):
    """One step that samples for each of `rows`, behind a prompt of `prompt` tokens; for the first `n_decode`
    not for the first time.
    """

    def __init__(
        self, rows: Sequence[Held], table: Sequence[bytes], prompt: int, n_decode: int, **sizes: Any
    ) -> None:
        ends = [prompt + len(row.answer) for row in rows]
        super().__init__(
            [(i, end - 1, end) for i, end in enumerate(ends)],
            vocab_size=len(table),
            max_batch=len(rows),
            n_decode=n_decode,
            **sizes,
        )
        self.params["prompt_tokens"] = prompt
        self.vocabulary_arrays = vocabulary_arrays(table)
        for name, array in self.vocabulary_arrays.items():
            self.tables["vocabulary"][name] = array.ctypes.data
        self.grammar_at = np.zeros(len(rows), np.uint32)
        self.grammar_states = np.zeros((len(rows), 2), GrammarState)
        words = [np.full(32, 0xABABABAB, np.uint32)]
        for i, row in enumerate(rows):
            self.history[i, prompt : ends[i]] = row.answer
            if row.grammar is None:
                continue
            self.grammar_at[i] = sum(map(len, words))
            words.append(np.frombuffer(row.grammar.pack(), np.uint32))
            self.params["grammar_words"][i] = len(words[-1])
            if i < n_decode:
                before = len(row.answer) - 1
                self.put(walked(row, table, before), i, before)
        self.grammars = np.concatenate(words)
        for name in ("grammars", "grammar_at", "grammar_states"):
            self.tables[name] = getattr(self, name).ctypes.data

    def put(self, walk: Walk, row: int, answered: int) -> None:
        state = self.grammar_states[row, answered % 2]
        state["state"], state["depth"] = walk.state, len(walk.stack)
        state["stack"][: len(walk.stack)] = walk.stack
