"""Steps whose sequences are held to grammars: arrays for the sampler's reference and kernel, and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from reference_ops import Floats, StepData
from regular import Node, either, grammar, one_of, star, text, then, times

from gpu_backend.abi import DEAD_END, GRAMMAR_STATES
from gpu_backend.engines.vocabulary import vocabulary_arrays
from ringbuffer.grammar import Grammar, Walk
from ringbuffer.grammar_abi import GRAMMAR_ACCEPTING, GRAMMAR_CALL_SHIFT, GrammarState

Rng = np.random.Generator
CALL = 1 << GRAMMAR_CALL_SHIFT
EOS, STOP, PROMPT = 3, 9, 10
ENDS = EOS, STOP
PLAIN = one_of(bytes(byte for byte in range(0x20, 256) if byte not in b'"\\'))
STRINGS = (star(PLAIN), times(one_of(b"abc 1"), 0, 9))
ASCII, LATER = (
    one_of(bytes(byte for byte in range(0x20, 0x80) if byte not in b'"\\')),
    one_of(bytes(range(0x80, 0xC0))),
)
UTF8 = [
    ASCII,
    *(reduce(then, [one_of(first), *[LATER] * n]) for n, first in enumerate((b"\xc3", b"\xe6", b"\xf0"), 1)),
]
DIGIT, WORD = one_of(b"0123456789"), one_of(b"abcdefghijklmnopqrstuvwxyz_")
LANGUAGES: list[Node] = [
    *(then(text(b'"'), then(inside, text(b'"'))) for inside in STRINGS),
    star(PLAIN),
    star(one_of(bytes(range(256)))),
    either(text(b"ab"), text(b"abc")),
    text(b"zzz"),
    star(either(text(b"a"), then(text(b"\n"), times(one_of(b" "), 0, 2)))),
    # States that many bytes do not leave, for which the sampler knows tokens by the classes of their bytes:
    then(WORD, then(star(WORD), text(b'"'))),
    then(one_of(b"-1"), then(star(DIGIT), star(WORD))),
    then(text(b'"'), then(star(reduce(either, UTF8)), text(b'"'))),
    times(WORD, 1, 5),
    star(one_of(b"abc7")),  # not all bytes of a class
    star(either(one_of(b"ab_ Qx"), then(text(b"-"), one_of(b"ab")))),
]
PIECES = [b'"', b"\\", b"\n", b" ", b"a", b"b", b"c", b"1", b"7", b"{", b"}", b"[", b"]", b":", b",", b"ab"]
PIECES += ["é".encode(), "漢".encode(), "😀".encode(), b"\xc3", b"\xa9", b"\xf0\x9f", b"\xff"]
PIECES += [b"_", b"-", b"x", b"Q", b"F", b".", b"cab", b"z_"]


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


@dataclass(eq=False)
class Constrained:
    """A sequence's answer so far under its grammar; None: it has none."""

    grammar: Grammar | None
    answer: list[int] = field(default_factory=list)


def allowed(walk: Walk, table: Sequence[bytes]) -> list[int]:
    """Tokens that may come next, by walking through each."""
    return [token for token, raw in enumerate(table) if raw and walk.copy().step_all(raw)]


def walked(held: Constrained, table: Sequence[bytes], n: int) -> Walk:
    """Where the answer's first `n` tokens lead."""
    assert held.grammar is not None
    walk = Walk(held.grammar)
    for token in held.answer[:n]:
        if token not in ENDS:
            walk.step_all(table[token])
    return walk


def extend(rows: Sequence[Constrained], table: Sequence[bytes], lengths: Sequence[int], rng: Rng) -> None:
    """Answers at random of these lengths, as the reference samples them; shorter where they cannot go on."""
    left = list(zip(rows, lengths, strict=True))
    while left := [(row, n) for row, n in left if len(row.answer) < n]:
        longest = PROMPT + 1 + max(len(row.answer) for row, _ in left)
        sizes = {"max_context": longest, "total_pages": len(left) * (longest // 16 + 1), "eos": ENDS}
        step = ConstrainedStep([row for row, _ in left], table, 0, **sizes)
        step.params["temperature"], step.params["seed"] = 1, rng.integers(0, 2**63, len(left))
        tokens = step.sample(rng.standard_normal((len(left), len(table))).astype(np.float32))
        for (row, _), token in zip(left, tokens, strict=True):
            if token < DEAD_END:
                row.answer.append(token)
        left = [one for one, token in zip(left, tokens, strict=True) if token < DEAD_END]


class ConstrainedStep(StepData):
    """One step that samples for each of `rows`, and for the first `n_decode` not for the first time."""

    def __init__(
        self, rows: Sequence[Constrained], table: Sequence[bytes], n_decode: int, **sizes: Any
    ) -> None:
        ends = [PROMPT + len(row.answer) for row in rows]
        super().__init__(
            [(i, end - 1, end) for i, end in enumerate(ends)],
            vocab_size=len(table),
            max_batch=len(rows),
            n_decode=n_decode,
            **sizes,
        )
        self.params["prompt_tokens"] = PROMPT
        self.vocabulary_arrays = vocabulary_arrays(table)
        for name, array in self.vocabulary_arrays.items():
            self.tables["vocabulary"][name] = array.ctypes.data
        self.grammar_at = np.zeros(len(rows), np.uint32)
        self.grammar_states = np.zeros((len(rows), GRAMMAR_STATES), GrammarState)
        words = [np.full(32, 0xABABABAB, np.uint32)]
        for i, row in enumerate(rows):
            self.history[i, PROMPT : ends[i]] = row.answer
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
        state = self.grammar_states[row, answered % GRAMMAR_STATES]
        state["state"], state["depth"] = walk.state, len(walk.stack)
        state["stack"][: len(walk.stack)] = walk.stack


def nested(bound: int) -> Grammar:
    """Lists and objects in each other, of strings and digits."""
    columns = np.full(256, 7, np.uint8)
    for column, members in enumerate((b"[", b"]", b"{", b"}", b",", b"17a"), 1):
        columns[list(members)] = column
    value, ended, in_list, in_object = 1, 2, 3, 4
    rows = np.zeros((5, 8), np.uint32)
    rows[value, [1, 3, 6]] = 1 * CALL | value, 2 * CALL | value, ended
    rows[ended, 0] = GRAMMAR_ACCEPTING
    rows[in_list, [2, 5]] = ended, 1 * CALL | value
    rows[in_object, [4, 5]] = ended, 2 * CALL | value
    return Grammar(columns, np.array([0, in_list, in_object], np.uint32), rows, value, bound)


def nested_words(bound: int) -> Grammar:
    """Lists in each other, of words that end where their lists go on."""
    columns = np.full(256, 5, np.uint8)
    for column, members in enumerate((b"[", b"]", b",", b"abcxz_"), 1):
        columns[list(members)] = column
    value, word, in_list, ended = 1, 2, 3, 4
    rows = np.zeros((5, 6), np.uint32)
    rows[value, [1, 4]] = 1 * CALL | value, word
    rows[word, [0, 4]] = GRAMMAR_ACCEPTING, word
    rows[in_list, [2, 3]] = ended, 1 * CALL | value
    rows[ended, 0] = GRAMMAR_ACCEPTING
    return Grammar(columns, np.array([0, in_list], np.uint32), rows, value, bound)


def grammars() -> list[Grammar | None]:
    return [None, *map(grammar, LANGUAGES), nested(2), nested(32), nested_words(1), nested_words(32)]


ROWS = 10  # of a step
NO_NUMBERS = 3  # the row of random_logits that has none


def random_logits(rows: int, vocab: int, seed: int) -> Floats:
    """With ties, NaN, and a row of nothing but NaN or minus infinity."""
    rng = np.random.default_rng(seed + 100)
    logits = (rng.choice([0.1, 3, 30]) * rng.standard_normal((rows, vocab))).astype(np.float32)
    logits[1] = np.round(logits[1])
    logits[2, rng.integers(0, vocab, 5)] = np.nan
    logits[NO_NUMBERS] = np.nan if seed % 2 else -np.inf
    return logits


def make_step(
    vocab: int, seed: int, copies: int = 1
) -> tuple[ConstrainedStep, list[Constrained], list[bytes]]:
    rng = np.random.default_rng(seed)
    table = random_vocabulary(vocab, rng)
    rows = [Constrained(found) for found in grammars() * copies]
    rows = [rows[i] for i in rng.permutation(len(rows))[: ROWS * copies]]
    extend(rows, table, rng.integers(0, 7, len(rows)).tolist(), rng)
    rows.sort(key=lambda row: not row.answer)  # those that have been sampled for come first
    n_decode = int(rng.integers(0, 1 + sum(bool(row.answer) for row in rows)))
    sizes = {"max_context": 48, "total_pages": 64 * copies, "eos": (EOS,), "seed": seed}
    step = ConstrainedStep(rows, table, n_decode, **sizes)
    choices = {
        "temperature": [0, 0.3, 1, 2, 50], "top_p": [1, 0.9, 0.5, 1e-8], "top_k": [0, 1, 5, 40],
        "min_p": [0, 0.05, 1], "repetition_penalty": [1, 1.3], "presence_penalty": [0, 0.5],
        "min_tokens": [0, 100], "flags": [0, 1],
    }  # fmt: skip
    for name, values in choices.items():
        step.params[name] = rng.choice(values, len(rows))
    step.params["seed"] = rng.integers(0, 2**63, len(rows))
    step.params["n_stop_ids"], step.params["stop_ids"][:, :3] = 3, [STOP, vocab, 2**32 - 1]
    step.head["id"] = 77
    return step, rows, table


def expected_sets(step: ConstrainedStep, rows: list[Constrained], table: list[bytes]) -> list[set[int]]:
    found = []
    for row, params in zip(rows, step.params, strict=True):
        if row.grammar is None:
            found.append(set(range(len(table))))
            continue
        walk = walked(row, table, len(row.answer))
        ends = walk.may_end() and len(row.answer) >= int(params["min_tokens"])
        found.append(set(allowed(walk, table)).difference(ENDS).union(ENDS if ends else ()))
    return found
