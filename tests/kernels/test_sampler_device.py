"""The sampler on the emulator, against its CPU reference."""

from __future__ import annotations

import numpy as np
import pytest
from emulation import Emulate
from reference_ops import StepData

from gpu_backend import abi
from ringbuffer.extents import controls


@pytest.mark.parametrize("blocks", [1, 2])
def test_penalties_of_the_largest_vocabularies(emulate: Emulate, blocks: int) -> None:
    """More ids than a block marks in one pass: each of a sequence's is penalised once, wherever it lies."""
    vocab, ids = 1 << 19, [0, 5, 262143, 262144, 262207, 300000, 524287]
    arrays = StepData([(0, 15, 16)], vocab_size=vocab, max_context=48)
    arrays.history[0, :16] = (ids * 3)[:16]
    arrays.params["prompt_tokens"], arrays.params["repetition_penalty"] = 10, 1.3
    arrays.params["presence_penalty"], arrays.params["temperature"] = 0.5, 1
    logits = np.random.default_rng(1).standard_normal((1, vocab)).astype(np.float32)
    expected = logits.copy()
    arrays.call("sample", expected)
    token = int(arrays.out_token[0])
    emulate("sample", arrays.step_set, arrays.tables, logits, 1, blocks)
    assert arrays.out_token[0] == token
    np.testing.assert_array_equal(logits, expected)


@pytest.mark.parametrize(
    ("vocab", "blocks"),
    [(33, 2), *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((512, 1), (3001, 4)))],
)
@pytest.mark.parametrize(
    "seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 8))]
)
def test_sampler_draws_what_its_reference_draws(emulate: Emulate, vocab: int, blocks: int, seed: int) -> None:
    """Token for token and logit for logit, with parameters drawn at random (E1, E4, E6)."""
    rng = np.random.default_rng(seed)
    arrays = StepData(
        [(i, 15 + 3 * i, 16 + 3 * i) for i in range(6)],
        vocab_size=vocab,
        max_context=48,
        eos=(3, 7),
        seed=seed,
    )
    choices = {
        "temperature": [0, 0.3, 1, 2, 1e-20, 50], "top_p": [1, 0.9, 0.5, 0.01, 1e-8],
        "top_k": [0, 1, 5, 40, 10**6], "min_p": [0, 0.05, 0.5, 1],
        "repetition_penalty": [1, 1.3, 0.8], "presence_penalty": [0, 0.5, -1],
        "frequency_penalty": [0, 0.3], "min_tokens": [0, 100], "flags": [0, 1],
        "logprob_words": [0, 1, 6, 21],
    }  # fmt: skip
    for name, values in choices.items():
        arrays.params[name] = rng.choice(values, 8)
    arrays.params["prompt_tokens"], arrays.params["seed"] = 10, rng.integers(0, 2**63, 8)
    arrays.params["n_stop_ids"], arrays.params["stop_ids"][:, :4] = 4, [5, 9, vocab, 2**32 - 1]
    arrays.batch_emit[4], arrays.head["id"] = 0, 77
    for row in range(0, 8, 2):
        allowed = rng.permutation(vocab)[: vocab // 2] if row % 4 else None
        biases = dict(zip(rng.permutation(vocab)[:30].tolist(), rng.normal(0, 3, 30).tolist(), strict=True))
        arrays.control(row, controls(vocab, allowed, biases, [[int(rng.integers(vocab))], [1, 2], [3, 4, 5]]))
    logits = (rng.choice([0.1, 3, 30]) * rng.standard_normal((6, vocab))).astype(np.float32)
    logits[1] = np.round(logits[1])  # ties
    logits[2, rng.integers(0, vocab, 5)] = np.nan
    logits[3] = np.nan if seed % 2 else -np.inf

    expected, history = logits.copy(), arrays.history.copy()
    arrays.call("sample", expected)
    reference = (arrays.out_token.copy(), arrays.history.copy(), arrays.out_logprobs.copy())
    arrays.out_token[:], arrays.history[:], arrays.out_logprobs[:] = 0, history, 0
    emulate("sample", arrays.step_set, arrays.tables, logits, 9, blocks)
    np.testing.assert_array_equal(arrays.out_token, reference[0])
    np.testing.assert_array_equal(arrays.history, reference[1])
    np.testing.assert_array_equal(arrays.out_logprobs, reference[2])
    np.testing.assert_array_equal(logits, expected)
    assert arrays.out_token[3] == abi.NO_TOKEN
    assert (arrays.completed[0], arrays.head["slots_done"][0]) == (77, 0)


@pytest.mark.parametrize(
    ("top_k", "top_p"),
    [
        (0, 0.9),
        (1500, 1.0),
        pytest.param(1500, 0.8, marks=pytest.mark.slow),
        pytest.param(20, 0.9, marks=pytest.mark.slow),
    ],
)
def test_a_block_that_lists_its_tokens_beside_one_that_has_too_many(
    emulate: Emulate, top_k: int, top_p: float
) -> None:
    """Of four blocks the first has 2048 tokens that are nearly as likely as each other, the second five; the
    tokens drawn are of both."""
    vocab, rows = 3001, 6
    rng = np.random.default_rng(top_k)
    logits = np.full((rows, vocab), -20, np.float32)
    logits[:, :2048] = 0.01 * rng.standard_normal((rows, 2048))
    logits[:, 2100:2600:100] = 6
    arrays = StepData([(i, 15, 16) for i in range(rows)], vocab_size=vocab, max_context=48, seed=1)
    arrays.params["prompt_tokens"], arrays.params["seed"] = 10, rng.integers(0, 2**63, 8)
    arrays.params["temperature"], arrays.params["top_k"], arrays.params["top_p"] = 1, top_k, top_p
    tokens = []
    for _ in range(2):
        arrays.params["seed"] += 1
        arrays.call("sample", logits.copy())
        expected = arrays.out_token.copy()
        emulate("sample", arrays.step_set, arrays.tables, logits.copy(), 6, 4)
        np.testing.assert_array_equal(arrays.out_token, expected)
        tokens += expected[:rows].tolist()
    assert any(token >= 2048 for token in tokens)
    assert top_k == 20 or any(token < 2048 for token in tokens)
