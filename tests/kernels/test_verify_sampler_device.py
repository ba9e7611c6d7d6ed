"""The sampler in a verify step (E27): the kernel, on the emulator, samples for each row what its reference
does, and both sample what a decode step would if the sequence ended with the row's token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulation import Emulate
from numpy.typing import NDArray
from reference_ops import Floats, StepData
from verify_rows import verify

from gpu_backend import abi
from ringbuffer.extents import controls

PROMPT, CONTEXT, EOS = 10, 48, 3
# Sequences and the positions of their rows: as many drafts as there may be, none, from the answer's first
# token on, and up to the end of the context.
CHUNKS = [(4, 20, 21 + abi.MAX_DRAFTS), (0, 15, 16), (6, PROMPT, 13), (1, 12, 15), (3, CONTEXT - 3, CONTEXT)]
N_ROWS = sum(end - first for _, first, end in CHUNKS)
NO_NUMBERS = 16  # the row whose logits are none

Outcome = tuple[NDArray[Any], ...]


def random_step(vocab: int, seed: int) -> tuple[StepData, Floats]:
    """Histories of few different tokens, so that what follows penalties and bans depends on the drafts."""
    rng = np.random.default_rng(seed)
    step = StepData(CHUNKS, vocab_size=vocab, max_context=CONTEXT, eos=(EOS, 7), seed=seed)
    verify(step, CHUNKS)
    step.history[:] = rng.integers(0, 12, step.history.shape)
    choices = {
        "temperature": [0, 0.3, 1, 2], "top_p": [1, 0.9, 0.5], "top_k": [0, 1, 5, 40], "min_p": [0, 0.05],
        "repetition_penalty": [1.3, 0.8, 1], "presence_penalty": [0.5, -1, 0], "frequency_penalty": [0, 0.3],
        "min_tokens": [0, 4, 18, 100], "flags": [0, 1], "logprob_words": [0, 1, 6, 21],
    }  # fmt: skip
    for name, values in choices.items():
        step.params[name] = rng.choice(values, 8)
    step.params["prompt_tokens"], step.params["seed"] = PROMPT, rng.integers(0, 2**63, 8)
    step.params["n_stop_ids"], step.params["stop_ids"][:, :2] = 2, [5, vocab]
    step.head["id"] = 77
    for sequence in range(0, 8, 2):
        biases = dict(zip(rng.permutation(vocab)[:30].tolist(), rng.normal(0, 3, 30).tolist(), strict=True))
        bans = [[int(rng.integers(vocab))], *rng.integers(0, 12, (20, 2)).tolist(), [1, 2, 3]]
        step.control(sequence, controls(vocab, None, biases, bans))
    logits = (rng.choice([0.1, 3, 30]) * rng.standard_normal((N_ROWS, vocab))).astype(np.float32)
    logits[1] = np.round(logits[1])  # ties
    logits[NO_NUMBERS] = np.nan
    return step, logits


def outcome(step: StepData, sample: Callable[..., None], logits: Floats) -> Outcome:
    """What there is behind the step, of which the history is put back."""
    before = step.history.copy()
    step.out_token[:], step.out_logprobs[:] = 0, 0
    sample(logits)
    found = (step.out_token.copy(), step.out_logprobs.copy(), step.history.copy(), logits)
    step.history[:] = before
    return found


@pytest.mark.parametrize(("vocab", "blocks"), [(40, 2), pytest.param(3001, 4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", range(3))
def test_each_row_samples_what_its_reference_samples(
    emulate: Emulate, vocab: int, blocks: int, seed: int
) -> None:
    step, logits = random_step(vocab, seed)
    reference = outcome(step, lambda of: step.call("sample", of), logits.copy())
    found = outcome(
        step, lambda of: emulate("sample", step.step_set, step.tables, of, N_ROWS + 2, blocks), logits.copy()
    )
    for ours, expected in zip(found, reference, strict=True):
        np.testing.assert_array_equal(ours, expected)
    assert (step.completed[0], step.head["slots_done"][0]) == (77, 0)


@pytest.mark.parametrize("seed", range(3))
def test_a_row_is_sampled_as_in_a_decode_step(seed: int) -> None:
    """Its penalties, bans and random numbers follow the drafts before it and know of none behind (E6)."""
    step, logits = random_step(40, seed)
    tokens, logprobs, _, left = outcome(step, lambda of: step.call("sample", of), logits.copy())
    for row, (sequence, position) in enumerate(zip(step.batch_sequence, step.token_position, strict=True)):
        alone = StepData([(0, position, position + 1)], vocab_size=40, max_context=CONTEXT, eos=(EOS, 7))
        alone.head["n_decode"] = 1
        alone.history[0, : position + 1] = step.history[sequence, : position + 1]
        alone.params[0], alone.controls[0] = step.params[sequence], step.controls[sequence]
        expected = logits[row : row + 1].copy()
        alone.call("sample", expected)
        assert tokens[row] == alone.out_token[0], row
        np.testing.assert_array_equal(logprobs[row], alone.out_logprobs[0])
        np.testing.assert_array_equal(left[row], expected[0])


def by_both(emulate: Emulate, step: StepData, logits: Floats) -> list[int]:
    """The tokens that kernel and reference sample, which are equal. The kernel's history is left."""
    expected = outcome(step, lambda of: step.call("sample", of), logits.copy())[0]
    emulate("sample", step.step_set, step.tables, logits.copy(), len(logits), 1)
    np.testing.assert_array_equal(step.out_token, expected)
    return [int(token) for token in expected]


def test_only_the_last_row_writes_the_history(emulate: Emulate) -> None:
    """It may be behind the context's end, where nothing is written either."""
    step, logits = random_step(40, 0)
    before = step.history.copy()
    tokens = by_both(emulate, step, logits)
    assert abi.NO_TOKEN in tokens
    lasts = np.cumsum([end - first for _, first, end in CHUNKS]) - 1
    for (sequence, _, end), last in zip(CHUNKS, lasts, strict=True):
        if end < CONTEXT:
            before[sequence, end] = tokens[last] if tokens[last] != abi.NO_TOKEN else 0
    np.testing.assert_array_equal(step.history, before)


def greedy(answer: list[int]) -> tuple[StepData, Floats]:
    """One sequence, whose answer's first token is known and whose others are drafts. 20 is the best token in
    each row, 21 the next, and so on."""
    first, end = PROMPT, PROMPT + len(answer)
    step = StepData([(0, first, end)], vocab_size=40, max_context=CONTEXT, eos=(EOS,))
    verify(step, [(0, first, end)])
    step.history[0] = 0
    step.history[0, first:end] = answer
    step.params["prompt_tokens"] = PROMPT
    logits = np.zeros((len(answer), 40), np.float32)
    logits[:, 20:] = np.arange(20, 0, -1)
    return step, logits


def test_a_banned_sequence_may_begin_with_drafts(emulate: Emulate) -> None:
    """Behind 5, 6 there is no 20, and behind 7 neither 20 nor 21. All other rows have 20."""
    step, logits = greedy([5, 6, 5, 7, 6, 5, 6])
    step.control(0, controls(40, None, {}, [[5, 6, 20], [7, 20], [7, 21]]))
    assert by_both(emulate, step, logits) == [20, 21, 20, 22, 20, 20, 21]


def test_a_draft_is_penalised_behind_itself_alone(emulate: Emulate) -> None:
    """The best token is a draft, once and again: from the next row on it is worth less each time."""
    step, logits = greedy([1, 20, 2, 20, 21, 20])
    step.params["frequency_penalty"] = 1.25
    # 20 has 20, 18.75, 17.5 and 16.25; 21 has 19, and 17.75 once it was there; 22 has 18.
    assert by_both(emulate, step, logits) == [20, 21, 21, 21, 22, 22]


def test_an_answer_may_end_from_the_row_on_that_has_its_least_tokens(emulate: Emulate) -> None:
    """min_tokens counts the drafts before a row: the first row has one token of the answer before what it
    samples."""
    step, logits = greedy([30, 31, 32, 33, 34])
    logits[:, EOS] = 99
    step.params["min_tokens"] = 3
    assert by_both(emulate, step, logits) == [20, 20, EOS, EOS, EOS]
