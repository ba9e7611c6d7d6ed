"""The sampler under grammars: the kernel, on the emulator, samples what its reference does, and both sample
what a walk through every token allows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from constrained import (
    ENDS,
    NO_NUMBERS,
    Constrained,
    ConstrainedStep,
    allowed,
    expected_sets,
    extend,
    make_step,
    random_logits,
    random_vocabulary,
    walked,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from regular import Node, grammar, languages

from gpu_backend import abi

Emulate = Callable[..., None]


@pytest.mark.parametrize(
    ("vocab", "blocks"),
    [(40, 2), (700, 1), *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((3001, 4), (9000, 8)))],
)
@pytest.mark.parametrize("seed", range(6))
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
