"""Log-probabilities and controls of the logits: the sampler's CPU reference, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference_ops import Floats, StepData

from gpu_backend import abi
from ringbuffer.extents import controls, logprobs

VOCAB = 1000
PROMPT = 10
TOP = 20
NO_RANK = 0


def make_arrays(answered: int = 0, vocab: int = VOCAB, **params: Any) -> StepData:
    """One batch slot, of a sequence with PROMPT prompt tokens and `answered` tokens of an answer."""
    last = PROMPT + answered - 1
    arrays = StepData([(0, last, last + 1)], vocab_size=vocab, max_batch=1, max_context=64)
    values = {"prompt_tokens": PROMPT, "logprob_words": 1 + TOP, "prompt_logprob_words": 1 + TOP, **params}
    for name, value in values.items():
        arrays.params[name] = value
    return arrays


def make_logits(spread: float = 3, vocab: int = VOCAB, seed: int = 0) -> Floats:
    return (spread * np.random.default_rng(seed).standard_normal((1, vocab))).astype(np.float32)


def log_softmax(logits: Floats) -> np.ndarray:
    x = logits.astype(np.float64)
    x = np.where(np.isnan(x), -np.inf, x)
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


def agree(found: np.ndarray, expected: np.ndarray) -> None:
    """The bound that log_weight.h names."""
    np.testing.assert_allclose(found, expected, rtol=2**-22, atol=2e-6)


@pytest.mark.parametrize("vocab", [TOP, VOCAB, 151_936])
@pytest.mark.parametrize("spread", [0, 0.1, 3, 100])
@pytest.mark.parametrize("seed", range(2))
def test_logprobs_are_those_of_the_raw_logits(vocab: int, spread: float, seed: int) -> None:
    """Before biases, penalties and temperature; the likeliest first, ties to the lower id."""
    arrays = make_arrays(3, vocab, temperature=1.5, repetition_penalty=1.2, presence_penalty=0.5, seed=seed)
    arrays.control(0, controls(vocab, range(min(500, vocab)), {1: 5.0, 2: -3.0}))
    logits = make_logits(spread, vocab, seed)
    expected = log_softmax(logits[0])
    token = arrays.sample(logits)[0]
    first, found = logprobs(arrays.out_logprobs[0])
    order = np.lexsort((np.arange(vocab), -logits[0]))
    assert first[1:].tolist() == order[:TOP].tolist()
    agree(found[1:], expected[order[:TOP]])
    agree(found[0], expected[token])
    rank = order.tolist().index(token) + 1
    assert first[0] == (rank if rank <= TOP else NO_RANK)


def test_a_prompts_token_has_its_rank_and_nothing_is_sampled() -> None:
    arrays = make_arrays()
    arrays.batch_emit[0], arrays.out_token[0] = abi.Emit.LOGPROBS, 77
    arrays.batch_last[0] = arrays.token_position[0] = 0
    arrays.token_position[0] = 4
    history, logits = arrays.history.copy(), make_logits()
    arrays.sample(logits)
    token = int(history[0, 5])
    first, found = logprobs(arrays.out_logprobs[0])
    assert first[0] == 1 + (logits[0] > logits[0, token]).sum()
    agree(found[0], log_softmax(logits[0])[token])
    assert first[1] == logits[0].argmax()
    np.testing.assert_array_equal(arrays.history, history)
    assert arrays.out_token[0] == 77


@pytest.mark.parametrize("seed", range(20))
def test_a_changed_logit_is_told_as_it_was(seed: int) -> None:
    """Whatever was done to the token that is drawn, where it is not among the likeliest."""
    rng = np.random.default_rng(seed)
    changes = {
        "repetition_penalty": rng.choice([0.5, 1, 1.5]), "presence_penalty": rng.choice([-2, 0, 2]),
        "frequency_penalty": rng.choice([-2, 0, 1.3]), "logprob_words": 1,
    }  # fmt: skip
    arrays = make_arrays(30, temperature=2.0, seed=seed, **changes)
    arrays.history[0] = rng.integers(0, 40, 64)
    arrays.control(0, controls(VOCAB, range(40), {t: float(rng.normal(0, 5)) for t in range(30)}))
    logits = make_logits(seed=seed)
    token = arrays.sample(logits)[0]
    first, found = logprobs(arrays.out_logprobs[0])
    np.testing.assert_allclose(found[0], log_softmax(logits[0])[token], atol=3e-5)
    assert first[0] == NO_RANK


def test_logits_that_are_no_numbers() -> None:
    arrays = make_arrays(logprob_words=4)
    logits = make_logits()
    logits[0, 100:] = np.nan
    logits[0, 50:100] = -np.inf
    arrays.sample(logits)
    agree(logprobs(arrays.out_logprobs[0])[1][0], log_softmax(logits[0]).max())
    logits[0, 7] = np.inf
    arrays.sample(logits)
    first, found = logprobs(arrays.out_logprobs[0])
    assert first[:2].tolist() == [1, 7]
    assert found[:4].tolist() == [0, 0, -np.inf, -np.inf]


def test_biases_and_mask() -> None:
    logits = make_logits()
    arrays = make_arrays()
    arrays.control(0, controls(VOCAB, biases={3: 100.0}))
    assert arrays.sample(logits) == [3]
    arrays = make_arrays()
    arrays.control(0, controls(VOCAB, allowed=[999, 31, 32], biases={5: 100.0, 31: 50.0, 32: 50.5}))
    logits[0, 31:33] = 0
    assert arrays.sample(logits) == [32]


def test_bans_look_at_the_answer_alone() -> None:
    """Of banned sequences the last token is not sampled behind the others; one that is longer than the answer
    does not begin in the prompt."""
    logits = np.full((1, VOCAB), -5, np.float32)
    logits[0, [10, 20, 30, 40]] = [4, 3, 2, 1]
    arrays = make_arrays(2)
    arrays.history[0, PROMPT - 1 : PROMPT + 2] = 7, 8, 9
    assert arrays.sample(logits) == [10]
    arrays.control(0, controls(VOCAB, bans=[[10]]))
    assert arrays.sample(logits) == [20]
    arrays.control(0, controls(VOCAB, bans=[[10], [8, 9, 20], [7, 8, 9, 30], [9, 8, 30], [8, 30]]))
    assert arrays.sample(logits) == [30]
    arrays.control(0, controls(VOCAB, bans=[[10], [8, 9, 20], [9, 30]]))
    assert arrays.sample(logits) == [40]


def test_no_token_is_left() -> None:
    arrays = make_arrays(temperature=1.0)
    arrays.control(0, controls(VOCAB, allowed=[5], bans=[[5]]))
    assert arrays.sample(make_logits()) == [abi.NO_TOKEN]
