"""The sampler under grammars: the kernel, on the emulator, samples what its reference does, and both sample
what a walk through every token allows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from constrained import (
    ENDS,
    EOS,
    NO_NUMBERS,
    STOP,
    Constrained,
    ConstrainedStep,
    allowed,
    expected_sets,
    extend,
    grammars,
    make_step,
    random_logits,
    random_vocabulary,
    walked,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from regular import Node, grammar, languages, star, text

from gpu_backend import abi
from ringbuffer.grammar import Grammar

Emulate = Callable[..., None]


@pytest.mark.parametrize(
    ("vocab", "blocks", "seed"),
    [
        *((40, 2, seed) for seed in range(2)),
        *((700, 1, seed) for seed in range(2)),
        *(pytest.param(40, 2, seed, marks=pytest.mark.slow) for seed in range(2, 6)),
        *(pytest.param(700, 1, seed, marks=pytest.mark.slow) for seed in range(2, 6)),
        *(pytest.param(3001, 4, seed, marks=pytest.mark.slow) for seed in range(3)),
        *(pytest.param(9000, 8, seed, marks=pytest.mark.slow) for seed in range(3, 5)),
    ],
)
def test_the_kernel_samples_what_its_reference_samples(
    emulate: Emulate, vocab: int, blocks: int, seed: int
) -> None:
    step, rows, table = make_step(vocab, seed)
    logits = random_logits(len(rows), vocab, seed)
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
        assert token in choices if choices and i != NO_NUMBERS else token >= abi.DEAD_END, (i, token)
        assert (token == abi.DEAD_END) == (not choices), (i, token)


def masks(emulate: Emulate, step: ConstrainedStep, rows: int, blocks: int) -> list[set[int]]:
    """The tokens that the kernel allows each row, all of which have grammars."""
    allowed = np.full((rows, int(step.tables["vocab_size"])), 7, np.uint32)
    emulate("token_mask", step.step_set, step.tables, allowed, rows, blocks)
    assert allowed.max() <= 1
    return [set(np.flatnonzero(row).tolist()) for row in allowed]


@pytest.mark.parametrize("blocks", [1, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("found", grammars()[1:])
def test_the_kernel_allows_what_a_walk_through_each_token_does(
    emulate: Emulate, found: Grammar, blocks: int
) -> None:
    rng = np.random.default_rng(blocks)
    table = random_vocabulary(2500, rng)
    rows = [Constrained(found) for _ in range(4)]
    extend(rows, table, [0, 1, 2, 5], rng)
    rows.sort(key=lambda row: not row.answer)
    n_decode = sum(bool(row.answer) for row in rows)
    step = ConstrainedStep(rows, table, n_decode, max_context=48, total_pages=64, eos=(EOS,))
    step.params["n_stop_ids"], step.params["stop_ids"][:, 0] = 1, STOP
    assert masks(emulate, step, len(rows), blocks) == expected_sets(step, rows, table)


def test_ends_are_allowed_where_no_token_has_bytes(emulate: Emulate) -> None:
    rows = [Constrained(grammar(star(text(b"a")))) for _ in range(16)]
    step = ConstrainedStep(rows, [b""] * 12, 0, max_context=48, total_pages=64, eos=ENDS)
    assert masks(emulate, step, len(rows), 1) == [set(ENDS)] * len(rows)


TOKENS = st.one_of(
    st.binary(max_size=6),
    st.text('abxyz_QR019-. "\\\n\t\x00\u00e9\u00fc\u6f22\U0001f600', max_size=9).map(str.encode),
)


@settings(max_examples=25, deadline=None)
@given(
    node=languages(b'ab_xQ7-" \\\n\xc3\xa9'),
    table=st.lists(TOKENS, min_size=ENDS[-1] + 1, max_size=300),
    n_answered=st.integers(0, 3),
    seed=st.integers(0, 1000),
)
def test_the_kernel_allows_what_a_walk_does_of_any_tokens(
    emulate: Emulate, node: Node, table: list[bytes], n_answered: int, seed: int
) -> None:
    row = Constrained(grammar(node))
    extend([row], table, [n_answered], np.random.default_rng(seed))
    step = ConstrainedStep([row], table, bool(row.answer), max_context=48, eos=ENDS)
    assert masks(emulate, step, 1, 1) == expected_sets(step, [row], table)


@settings(max_examples=60, deadline=None)
@given(node=languages(), seed=st.integers(0, 1000))
def test_the_reference_allows_what_the_language_does(node: Node, seed: int) -> None:
    """Greedy over random logits: the best token of those that a walk through each allows."""
    rng = np.random.default_rng(seed)
    table = random_vocabulary(60, rng)
    row = Constrained(grammar(node))
    extend([row], table, [int(rng.integers(0, 5))], rng)
    step = ConstrainedStep([row], table, 0, max_context=48, eos=ENDS)
    logits = rng.standard_normal((1, 60)).astype(np.float32)
    walk = walked(row, table, len(row.answer))
    choices = set(allowed(walk, table)).difference(ENDS).union(ENDS if walk.may_end() else ())
    best = max(choices, key=lambda token: logits[0, token], default=abi.DEAD_END)
    assert step.sample(logits) == [best]
