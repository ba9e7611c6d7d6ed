"""Logits processors: the CPU reference against Python, and the sampler on the emulator against both."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from constrained import expected_sets, make_step
from emulation import Emulate
from numpy.typing import NDArray
from reference_ops import Floats, StepData
from verify_rows import verify

from gpu_backend import abi
from gpu_backend.processors.numba_code import HostCode
from ringbuffer.extents import controls

VOCAB, PROMPT = 200, 10
PLUS, BAN = 0, 1  # indices of the processors


def plus_token(token, logit, position, recent, args):
    """Tells apart all that it is given."""
    return logit + args[0] * token + args[7] * position + recent[-1] / 1024 + recent[0] / 4096


def ban_recent(token, logit, position, recent, args):
    found = False
    for seen in recent:
        found |= seen == token
    return -math.inf if found else logit + args[0]


@pytest.fixture(scope="module")
def codes() -> list[HostCode]:
    return [HostCode(plus_token), HostCode(ban_recent)]


@pytest.fixture
def addresses(codes: list[HostCode]) -> NDArray[np.uint64]:
    return np.array([code.address for code in codes], np.uint64)


def made_arrays(addresses: NDArray[np.uint64], lengths: Sequence[int], vocab: int = VOCAB) -> StepData:
    """A batch slot of each of these lengths, prompt and answer together."""
    arrays = StepData(
        [(i, length - 1, length) for i, length in enumerate(lengths)],
        vocab_size=vocab,
        max_context=112,
        total_pages=64,
    )
    arrays.params["prompt_tokens"] = PROMPT
    arrays.processors = addresses
    arrays.tables["processors"], arrays.tables["n_processors"] = addresses.ctypes.data, len(addresses)
    return arrays


def expected_logits(
    arrays: StepData, row: int, asked: Sequence[tuple[int, list[float]]], logits: Floats
) -> Floats:
    """What the processors make of a row's logits, in plain Python."""
    length = int(arrays.token_position[arrays.batch_last[row]]) + 1
    tokens = arrays.history[row, :length].astype(int).tolist()
    recent = ([-1] * abi.RECENT_TOKENS + tokens)[-abi.RECENT_TOKENS :]
    made = logits.copy()
    for index, args in asked:
        numbers = [*args, *[0.0] * (8 - len(args))]
        function = (plus_token, ban_recent)[index]
        for token in range(len(made)):
            if made[token] > -np.inf:
                made[token] = function(token, made[token], length - PROMPT, recent, numbers)
    return made


def test_a_processor_sees_the_token_its_position_and_what_came_before(addresses: NDArray[np.uint64]) -> None:
    """Rows shorter and longer than what is told of them; the greedy token is that of the changed logits."""
    arrays = made_arrays(addresses, [11, 64, 65, 100])
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((4, VOCAB)).astype(np.float32)
    asked = [(PLUS, [0.01, 0, 0, 0, 0, 0, 0, 0.5])]
    for row in range(4):
        arrays.control(row, controls(VOCAB, processors=asked))
    tokens = arrays.sample(logits)
    best = [int(np.argmax(expected_logits(arrays, row, asked, logits[row]))) for row in range(4)]
    assert tokens == best
    assert tokens != [int(np.argmax(row)) for row in logits]


def test_processors_run_in_the_order_of_the_request_and_others_not_at_all(
    addresses: NDArray[np.uint64],
) -> None:
    arrays = made_arrays(addresses, [20, 20, 20])
    arrays.history[:, :20] = arrays.history[0, :20]
    logits = np.zeros((3, VOCAB), np.float32)
    first = int(arrays.history[0, 19])
    logits[:, first] = 5
    arrays.control(0, controls(VOCAB, processors=[(BAN, [1.0])]))
    arrays.control(1, controls(VOCAB, processors=[(PLUS, [1.0]), (BAN, [])]))
    tokens = arrays.sample(logits)
    allowed = [t for t in range(VOCAB) if t not in arrays.history[0, :20]]
    assert tokens == [allowed[0], allowed[-1], first]
    assert not arrays.head["processing"].any()


def test_what_is_forbidden_stays_so(addresses: NDArray[np.uint64]) -> None:
    """A processor that returns more for every token brings back none that was excluded before."""
    arrays = made_arrays(addresses, [20])
    held = controls(VOCAB, range(50), {3: -np.inf}, [[7]], [(PLUS, [10.0])])
    arrays.control(0, held)
    logits = np.zeros((1, VOCAB), np.float32)
    assert arrays.sample(logits) == [49]
    held = controls(VOCAB, [3, 7, 9], {3: -np.inf}, [[7]], [(PLUS, [-10.0])])
    arrays.control(0, held)
    assert arrays.sample(logits) == [9]


def test_log_probabilities_are_of_the_logits_before(addresses: NDArray[np.uint64]) -> None:
    """Also of a token that is not among the likeliest: its bias and penalties are undone, and the processor's
    change was never made to them."""
    arrays = made_arrays(addresses, [20])
    arrays.params["logprob_words"], arrays.params["repetition_penalty"] = 3, 1.5
    arrays.control(0, controls(VOCAB, biases={VOCAB - 1: 2.0}, processors=[(PLUS, [10.0])]))
    logits = np.random.default_rng(3).standard_normal((1, VOCAB)).astype(np.float32)
    (token,) = arrays.sample(logits)
    assert token == VOCAB - 1
    told = arrays.out_logprobs[0, :3].view(np.uint32)[1::2].copy().view(np.float32)
    exact = logits[0] - np.log(np.exp(logits[0].astype(np.float64)).sum())
    np.testing.assert_allclose(told, [exact[token], *np.sort(exact)[::-1][:2]], atol=3e-6)


@pytest.mark.parametrize(("vocab", "blocks"), [(33, 2), pytest.param(3001, 4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
def test_the_kernel_draws_what_the_reference_draws(
    emulate: Emulate, addresses: NDArray[np.uint64], vocab: int, blocks: int, seed: int
) -> None:
    """Token for token and bit for bit, with rows that ask for one, for two, for one that there is not, and
    for none; greedy and drawn, with log-probabilities and without."""
    rng = np.random.default_rng(seed)
    arrays = made_arrays(addresses, [11, 30, 64, 80, 100, 12], vocab)
    arrays.head["id"] = 7
    choices = {
        "temperature": [0, 0.7, 1.3], "top_p": [1, 0.8], "top_k": [0, 7], "logprob_words": [0, 1, 6],
        "repetition_penalty": [1, 1.3], "presence_penalty": [0, 0.5],
    }  # fmt: skip
    for name, values in choices.items():
        arrays.params[name] = rng.choice(values, 8)
    arrays.params["seed"] = rng.integers(0, 2**63, 8)
    asked = [
        [(PLUS, [0.1])],
        [(PLUS, [0.1]), (BAN, [2.0])],
        [(BAN, [])],
        [(6, [1.0]), (BAN, [])],
        [],
        [(9, [])],
    ]
    for row, processors in enumerate(asked):
        allowed = rng.permutation(vocab)[: vocab // 2 + 1] if row == 1 else None
        arrays.control(row, controls(vocab, allowed, {3: 1.5, vocab - 1: -2.0}, [[4]], processors))
    logits = (3 * rng.standard_normal((6, vocab))).astype(np.float32)
    logits[0, rng.integers(0, vocab, 3)] = np.nan
    expected, history = logits.copy(), arrays.history.copy()
    arrays.call("sample", expected)
    reference = (arrays.out_token.copy(), arrays.history.copy(), arrays.out_logprobs.copy())
    arrays.out_token[:], arrays.history[:], arrays.out_logprobs[:] = 0, history, 0
    processed = np.full_like(logits, np.nan)
    emulate("processing_sample", arrays.step_set, arrays.tables, logits, processed, addresses, 6, blocks)
    np.testing.assert_array_equal(arrays.out_token, reference[0])
    np.testing.assert_array_equal(arrays.history, reference[1])
    np.testing.assert_array_equal(arrays.out_logprobs, reference[2])
    np.testing.assert_array_equal(logits, expected)
    assert np.isnan(processed[4]).all(), "a row that asks for none was written"
    assert not arrays.head["processing"].any()
    assert (arrays.completed[0], arrays.head["slots_done"][0]) == (7, 0)


def raise_recent(token, logit, position, recent, args):
    found = False
    for seen in recent:
        found |= seen == token
    return np.float32(logit + args[0]) if found else logit


@pytest.mark.parametrize("asked", [[BAN], [PLUS, BAN], [BAN, PLUS], [BAN, BAN]], ids=str)
def test_one_that_changes_only_recent_tokens_is_called_for_no_others(
    emulate: Emulate, codes: list[HostCode], asked: list[int]
) -> None:
    """It chooses what it would if it were called for all, and log-probabilities are as well of the logits
    before; alone, in front of, behind and after another; for tokens that came once, often, and not at all.
    """
    marked = HostCode(raise_recent)
    addresses = np.array([codes[PLUS].address, marked.address], np.uint64)
    rng = np.random.default_rng(len(asked) + asked[0])
    vocab, args = 90, {PLUS: [0.01], BAN: [6.0]}
    arrays = made_arrays(addresses, [11, 12, 64, 65, 100, 12], vocab)
    arrays.head["id"] = 7
    arrays.history[2] = rng.integers(0, 9, arrays.history.shape[1])
    arrays.params["temperature"], arrays.params["seed"] = [0, 1] * 4, rng.integers(0, 2**63, 8)
    arrays.params["logprob_words"] = [0, 1, 6, 6, 0, 1, 1, 1]
    for row in range(5):
        arrays.control(row, controls(vocab, processors=[(index, args[index]) for index in asked]))
    logits = rng.uniform(0, 9, (6, vocab)).astype(np.float32)
    history, seen = arrays.history.copy(), []
    for bits in (0, 1 << BAN):
        arrays.tables["recent_processors"] = bits
        for emulated in (False, True):
            arrays.out_token[:], arrays.history[:], arrays.out_logprobs[:] = 0, history, 0
            processed, given = np.full_like(logits, np.nan), logits.copy()
            if emulated:
                emulate(
                    "processing_sample", arrays.step_set, arrays.tables, given, processed, addresses, 6, 2
                )
                written = bits == 0 or PLUS in asked
                assert np.isnan(processed[:5]).all() == (not written)
            else:
                arrays.call("sample", given)
            seen.append((arrays.out_token.copy(), arrays.out_logprobs.copy()))
    for tokens, words in seen[1:]:
        np.testing.assert_array_equal(tokens, seen[0][0])
        np.testing.assert_array_equal(words, seen[0][1])
    assert seen[0][0][:5].tolist() != [int(row.argmax()) for row in logits[:5]]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_rows_of_a_verify_step_see_the_drafts_before_them(
    emulate: Emulate, addresses: NDArray[np.uint64], seed: int
) -> None:
    """Each samples what a decode step would if its sequence ended there (E27)."""
    chunks, vocab = [(4, 60, 75), (0, 15, 16), (6, PROMPT, 13)], 40
    rng = np.random.default_rng(seed)
    step = made_arrays(addresses, [1] * 8, vocab)
    verify(step, chunks)
    step.history[:] = rng.integers(0, vocab, step.history.shape)
    step.params["temperature"], step.params["seed"] = rng.choice([0, 1], 8), rng.integers(0, 2**63, 8)
    for sequence in (4, 6):
        step.control(sequence, controls(vocab, processors=[(PLUS, [0.1, *[0.0] * 6, 0.3]), (BAN, [])]))
    logits = rng.standard_normal((len(step.batch_emit), vocab)).astype(np.float32)
    history = step.history.copy()
    step.call("sample", logits.copy())
    tokens = step.out_token.copy()
    step.history[:] = history
    processed = np.zeros_like(logits)
    emulate(
        "processing_sample", step.step_set, step.tables, logits.copy(), processed, addresses, len(logits), 1
    )
    np.testing.assert_array_equal(step.out_token, tokens)
    for row, (sequence, position) in enumerate(zip(step.batch_sequence, step.token_position, strict=True)):
        alone = made_arrays(addresses, [int(position) + 1], vocab)
        alone.history[0] = history[sequence]
        alone.params[0], alone.controls[0] = step.params[sequence], step.controls[sequence]
        assert alone.sample(logits[row : row + 1]) == [tokens[row]], row


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_processors_beside_grammars(emulate: Emulate, addresses: NDArray[np.uint64], seed: int) -> None:
    """What a grammar allows is chosen from as processors have left it, and nothing else."""
    step, rows, table = make_step(700, seed)
    step.processors = addresses
    step.tables["processors"], step.tables["n_processors"] = addresses.ctypes.data, 2
    for row in range(0, len(rows), 2):
        step.control(row, controls(len(table), processors=[(PLUS, [0.01])]))
    logits = np.random.default_rng(seed).standard_normal((len(rows), len(table))).astype(np.float32)
    states, history = step.grammar_states.copy(), step.history.copy()
    step.call("sample", logits.copy())
    tokens = step.out_token.copy()
    step.grammar_states[:], step.history[:] = states, history
    processed = np.zeros_like(logits)
    emulate(
        "processing_sample", step.step_set, step.tables, logits.copy(), processed, addresses, len(rows), 2
    )
    np.testing.assert_array_equal(step.out_token, tokens)
    for row, choices in enumerate(expected_sets(step, rows, table)):
        assert tokens[row] in choices if choices else tokens[row] == abi.DEAD_END


def test_a_row_whose_tokens_are_all_excluded_has_none(
    emulate: Emulate, addresses: NDArray[np.uint64]
) -> None:
    arrays = made_arrays(addresses, [100], 30)
    arrays.history[0, 70:100] = range(30)
    arrays.control(0, controls(30, processors=[(BAN, [])]))
    logits = np.zeros((1, 30), np.float32)
    assert arrays.sample(logits) == [abi.NO_TOKEN]
    emulate("processing_sample", arrays.step_set, arrays.tables, logits, logits.copy(), addresses, 1, 1)
    assert arrays.out_token[0] == abi.NO_TOKEN
