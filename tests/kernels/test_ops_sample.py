"""The sampler's CPU reference: sets, distribution, penalties, independence of the batch (E6)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from reference_ops import Floats, StepData
from transformers import RepetitionPenaltyLogitsProcessor

from gpu_backend import abi
from ringbuffer.abi import RequestFlags

VOCAB = 1000
PROMPT = 10
DRAWS = 4000


def make_logits(vocab: int = VOCAB, seed: int = 0) -> Floats:
    return (3 * np.random.default_rng(seed).standard_normal(vocab)).astype(np.float32)


def make_arrays(
    batch_slots: int = 1, answered: int = 0, eos: tuple[int, ...] = (), **params: Any
) -> StepData:
    """Lanes whose rows hold PROMPT prompt tokens and `answered` tokens of an answer."""
    last = PROMPT + answered - 1
    arrays = StepData(
        [(batch_slot, last, last + 1) for batch_slot in range(batch_slots)],
        vocab_size=VOCAB,
        max_batch=max(batch_slots, 1),
        max_context=32,
        total_pages=2 * batch_slots,
        eos=eos,
    )
    arrays.params["prompt_tokens"] = PROMPT
    for name, value in params.items():
        arrays.params[name] = value
    return arrays


def draws(logits: Floats, n: int = DRAWS, **params: Any) -> NDArray[np.int64]:
    """Tokens drawn with seeds 0..n."""
    batch_slots = 200
    arrays = make_arrays(batch_slots, **params)
    out = []
    for first in range(0, n, batch_slots):
        arrays.params["seed"] = np.arange(first, first + batch_slots)
        out += arrays.sample(np.tile(logits, (batch_slots, 1)))
    return np.array(out)


def reference_set(logits: Floats, t: float, min_p: float = 0, top_k: int = 0, top_p: float = 1) -> set[int]:
    """The ids that may be drawn, by sorting: temperature, then min-p, top-k, top-p; ties are kept whole."""
    p = np.exp((logits.astype(np.float64) - logits.max()) / t)
    kept = p >= min_p * p.max()
    if top_k:
        kept &= p >= np.sort(p[kept])[::-1][:top_k][-1]
    if top_p < 1:
        order = np.argsort(-p, kind="stable")
        order = order[kept[order]]
        mass = np.cumsum(p[order]) / p[order].sum()
        kept &= p >= p[order[np.searchsorted(mass, top_p)]]
    return set(np.flatnonzero(kept))


def test_greedy_ties_go_to_the_lowest_id() -> None:
    logits = np.full((4, VOCAB), -1, np.float32)
    logits[0, [900, 17, 400]] = 2.5
    logits[1, 3], logits[1, 2] = -0.0, 0.0
    logits[2] = -np.inf
    logits[2, 777] = -1e30
    logits[3, [5, 8]] = np.inf
    assert make_arrays(4).sample(logits) == [17, 2, 777, 5]


NO_CANDIDATE = {
    "NaN": np.full(VOCAB, np.nan, np.float32),
    "-inf": np.full(VOCAB, -np.inf, np.float32),
    "both": np.where(np.arange(VOCAB) % 2, np.nan, -np.inf).astype(np.float32),
    "masked": np.where(np.arange(VOCAB) == 10, 5, -np.inf).astype(np.float32),  # but for an end token
}


@pytest.mark.parametrize("logits", NO_CANDIDATE.values(), ids=NO_CANDIDATE)
@pytest.mark.parametrize("params", [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 5, "top_p": 0.5}])
def test_a_lane_without_a_candidate_has_no_token(logits: Floats, params: dict[str, Any]) -> None:
    """Its neighbour has one. What a step that was planned ahead would feed is a token all the same."""
    arrays = make_arrays(2, eos=(10,), min_tokens=3, **params)
    assert arrays.sample(np.stack([logits, make_logits()]))[0] == abi.NO_TOKEN
    assert arrays.out_token[1] < VOCAB
    assert arrays.history[0, PROMPT] == 0


def test_the_only_number_among_nan_is_drawn() -> None:
    logits = np.full((2, VOCAB), np.nan, np.float32)
    logits[:, 700] = -1e30
    arrays = make_arrays(2, top_p=0.9)
    arrays.params["temperature"] = [0, 1]
    assert arrays.sample(logits) == [700, 700]


def test_nan_is_never_sampled() -> None:
    logits = np.tile(make_logits(), (2, 1))
    logits[:, :900] = np.nan
    arrays = make_arrays(2)
    arrays.params["temperature"] = [0, 1]
    assert min(arrays.sample(logits)) >= 900


@pytest.mark.parametrize(
    "params",
    [
        {"top_k": 1}, {"top_k": 7}, {"top_k": 900, "top_p": 0.9}, {"top_k": 5, "top_p": 0.999},
        {"top_p": 0.5}, {"top_p": 0.05}, {"min_p": 0.1}, {"min_p": 1.0},
        {"top_k": 30, "top_p": 0.6, "min_p": 0.02},
    ],
)  # fmt: skip
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_filters_keep_exactly_the_reference_set(params: dict[str, Any], temperature: float) -> None:
    """Nothing outside the set is drawn, and all of it that is likely enough to be seen is."""
    logits = make_logits(seed=1)
    allowed = reference_set(logits, temperature, **params)
    tokens = draws(logits, temperature=temperature, **params)
    assert set(tokens) <= allowed
    p = np.exp((logits - logits.max()).astype(np.float64) / temperature)
    mass = p[list(allowed)].sum()
    assert {i for i in allowed if p[i] / mass > 20 / DRAWS} <= set(tokens)


@pytest.mark.parametrize("params", [{"top_k": 2}, {"top_p": 0.6}])
def test_ties_at_the_threshold_are_kept(params: dict[str, Any]) -> None:
    logits = np.full(VOCAB, -20, np.float32)
    logits[[5, 50, 500]] = [1, 2, 1]
    assert set(draws(logits, temperature=1.0, **params)) == {5, 50, 500}


@pytest.mark.parametrize("params", [{}, {"temperature": 1.7}, {"top_k": 20}, {"top_p": 0.8}, {"min_p": 0.05}])
def test_distribution(params: dict[str, Any]) -> None:
    """Chi-square over the tokens that are expected at least 10 times, the rest as one cell."""
    params = {"temperature": 1.0, **params}
    logits = make_logits(seed=2)
    filters = {name: value for name, value in params.items() if name != "temperature"}
    allowed = list(reference_set(logits, params["temperature"], **filters))
    p = np.zeros(VOCAB)
    p[allowed] = np.exp((logits[allowed] - logits.max()).astype(np.float64) / params["temperature"])
    expected = p / p.sum() * DRAWS
    counts = np.bincount(draws(logits, **params), minlength=VOCAB)
    common = expected >= 10
    cells = np.append(expected[common], expected[~common].sum())
    seen = np.append(counts[common], counts[~common].sum())
    cells, seen = cells[cells > 0], seen[cells > 0]
    chi2 = ((seen - cells) ** 2 / cells).sum()
    degrees = len(cells) - 1
    assert chi2 < degrees + 4 * np.sqrt(2 * degrees) + 8  # four standard deviations and more


def test_draw_depends_on_seed_and_position_alone() -> None:
    """E6: the same batch slot in other company, at another batch slot index, with other neighbours'
    parameters."""
    logits = np.stack([make_logits(seed=s) for s in range(6)])
    arrays = make_arrays(6, answered=3)
    arrays.params["temperature"] = [1, 0, 2, 1, 0.7, 1]
    arrays.params["top_p"] = [0.9, 1, 0.5, 1, 1, 0.99]
    arrays.params["seed"] = [1, 2, 3, 4, 5, 6]
    together = arrays.sample(logits)
    for batch_slot in range(6):
        alone = make_arrays(1, answered=3)
        alone.params[0] = arrays.params[batch_slot]
        assert alone.sample(logits[batch_slot : batch_slot + 1]) == together[batch_slot : batch_slot + 1]
    reversed_arrays = make_arrays(6, answered=3)
    reversed_arrays.params[:] = arrays.params[::-1]
    assert reversed_arrays.sample(logits[::-1]) == together[::-1]


def test_positions_and_seeds_draw_independently() -> None:
    logits = np.zeros(VOCAB, np.float32)
    by_position = [
        make_arrays(answered=n, temperature=1.0, seed=1).sample(logits[None])[0] for n in range(20)
    ]
    assert len(set(by_position)) > 15
    tokens = draws(logits, 2000, temperature=1.0)
    assert abs(np.corrcoef(tokens[:-1], tokens[1:])[0, 1]) < 0.1


def test_penalties() -> None:
    """Repetition over prompt and answer as transformers does it; presence and frequency over the answer."""
    answered = 20
    arrays = make_arrays(
        answered=answered, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.25
    )
    rng = np.random.default_rng(3)
    arrays.history[0] = rng.integers(0, 12, arrays.history.shape[1])
    history = arrays.history[0, : PROMPT + answered].astype(np.int64)
    logits = np.array(make_logits(seed=4))[None]
    repetition = RepetitionPenaltyLogitsProcessor(1.3)
    expected = repetition(torch.tensor(history[None]), torch.tensor(logits)).numpy()[0].astype(np.float64)
    counts = np.bincount(history[PROMPT:], minlength=VOCAB)
    expected -= 0.4 * (counts > 0) + 0.25 * counts
    arrays.call("sample", logits)  # the reference leaves the penalised logits behind
    np.testing.assert_allclose(logits[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("answered", "flags", "expected"), [(0, 0, 30), (1, 0, 30), (2, 0, 10), (1, RequestFlags.IGNORE_EOS, 10)]
)
def test_min_tokens_masks_end_and_stop_ids(answered: int, flags: int, expected: int) -> None:
    logits = np.zeros((1, VOCAB), np.float32)
    logits[0, [10, 20, 30]] = [5, 4, 3]
    arrays = make_arrays(answered=answered, eos=(10,), min_tokens=2, flags=flags)
    arrays.params["n_stop_ids"] = 3
    arrays.params["stop_ids"][0, :3] = 20, VOCAB, 2**32 - 1  # a stop id may be no token at all
    assert arrays.sample(logits) == [expected]


def test_only_emitting_lanes_write() -> None:
    """E4."""
    arrays = make_arrays(3)
    arrays.batch_emit[1] = 0
    arrays.out_token[:] = VOCAB + 1
    before = arrays.history.copy()
    tokens = arrays.sample(np.stack([make_logits(seed=s) for s in range(3)]))
    assert tokens[1] == VOCAB + 1
    np.testing.assert_array_equal(arrays.history[1], before[1])
    assert [int(arrays.history[batch_slot, PROMPT]) for batch_slot in (0, 2)] == [tokens[0], tokens[2]]


def test_extreme_temperatures() -> None:
    logits = make_logits(seed=5)
    assert set(draws(logits, 200, temperature=1e-30)) == {int(logits.argmax())}
    assert len(set(draws(logits, 1000, temperature=1e30))) > 600
