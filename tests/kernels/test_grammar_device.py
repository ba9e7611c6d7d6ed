"""The sampler under grammars: the kernel, on the emulator, samples what its reference does, and both sample
what a walk through every token allows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from held import Held, HeldStep, allowed, extend, random_vocabulary, walked
from hypothesis import given, settings
from hypothesis import strategies as st
from regular import Node, either, grammar, languages, one_of, star, text, then, times

from gpu_backend import abi
from ringbuffer.grammar import Grammar
from ringbuffer.grammar_abi import GRAMMAR_ACCEPTING, GRAMMAR_CALL_SHIFT

Emulate = Callable[..., None]
CALL = 1 << GRAMMAR_CALL_SHIFT
EOS, STOP, PROMPT = 3, 9, 10
PLAIN = one_of(bytes(byte for byte in range(0x20, 256) if byte not in b'"\\'))
STRINGS = (star(PLAIN), times(one_of(b"abc 1"), 0, 9))
LANGUAGES: list[Node] = [
    *(then(text(b'"'), then(inside, text(b'"'))) for inside in STRINGS),
    star(PLAIN),
    star(one_of(bytes(range(256)))),
    either(text(b"ab"), text(b"abc")),
    text(b"zzz"),
    star(either(text(b"a"), then(text(b"\n"), times(one_of(b" "), 0, 2)))),
]


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


def grammars() -> list[Grammar | None]:
    return [None, *map(grammar, LANGUAGES), nested(2), nested(32)]


def make_step(vocab: int, seed: int) -> tuple[HeldStep, list[Held], list[bytes]]:
    rng = np.random.default_rng(seed)
    table = random_vocabulary(vocab, rng)
    rows = [Held(found) for found in grammars()]
    rng.shuffle(rows)  # type: ignore[arg-type]
    for row in rows:
        extend(row, table, int(rng.integers(1, 12)), rng)
    rows.sort(key=lambda row: not row.answer)  # those that have been sampled for come first
    n_decode = int(rng.integers(0, 1 + sum(bool(row.answer) for row in rows)))
    sizes = {"max_context": 48, "total_pages": 64, "eos": (EOS,), "seed": seed}
    step = HeldStep(rows, table, PROMPT, n_decode, **sizes)
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


def expected_sets(step: HeldStep, rows: list[Held], table: list[bytes]) -> list[set[int]]:
    found = []
    for row, params in zip(rows, step.params, strict=True):
        if row.grammar is None:
            found.append(set(range(len(table))))
            continue
        walk = walked(row, table, len(row.answer))
        ends = walk.may_end() and len(row.answer) >= int(params["min_tokens"])
        found.append((set(allowed(walk, table)) - {EOS, STOP}) | ({EOS, STOP} if ends else set()))
    return found


@pytest.mark.parametrize(
    ("vocab", "blocks"),
    [(40, 2), (700, 1), *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((3001, 4), (9000, 8)))],
)
@pytest.mark.parametrize("seed", range(6))
def test_the_kernel_samples_what_its_twin_samples(
    emulate: Emulate, vocab: int, blocks: int, seed: int
) -> None:
    step, rows, table = make_step(vocab, seed)
    rng = np.random.default_rng(seed + 100)
    logits = (rng.choice([0.1, 3, 30]) * rng.standard_normal((len(rows), vocab))).astype(np.float32)
    logits[1] = np.round(logits[1])  # ties
    logits[2, rng.integers(0, vocab, 5)] = np.nan
    logits[3] = np.nan if seed % 2 else -np.inf

    states = step.grammar_states.copy()
    step.call("sample", logits.copy())
    reference = step.out_token.copy(), step.history.copy(), step.grammar_states.copy()
    step.out_token[:] = 0
    step.grammar_states[:] = states
    emulate("sample", step.step_set, step.tables, logits, len(rows), blocks)
    np.testing.assert_array_equal(step.out_token, reference[0])
    np.testing.assert_array_equal(step.history, reference[1])
    for name in ("state", "depth"):
        np.testing.assert_array_equal(step.grammar_states[name], reference[2][name])

    for i, choices in enumerate(expected_sets(step, rows, table)):
        token = int(step.out_token[i])
        assert token in choices if choices and i != 3 else token >= abi.DEAD_END, (i, token)
        assert (token == abi.DEAD_END) == (not choices), (i, token)


@settings(max_examples=60, deadline=None)
@given(node=languages(), seed=st.integers(0, 1000))
def test_the_reference_allows_what_the_language_does(node: Node, seed: int) -> None:
    """Greedy over random logits: the best token of those that a walk through each allows."""
    rng = np.random.default_rng(seed)
    table = random_vocabulary(60, rng)
    row = Held(grammar(node))
    extend(row, table, int(rng.integers(0, 5)), rng)
    step = HeldStep([row], table, PROMPT, 0, max_context=48, eos=(EOS,))
    logits = rng.standard_normal((1, 60)).astype(np.float32)
    walk = walked(row, table, len(row.answer))
    choices = (set(allowed(walk, table)) - {EOS}) | ({EOS} if walk.may_end() else set())
    best = max(choices, key=lambda token: logits[0, token], default=abi.DEAD_END)
    assert step.sample(logits) == [best]
