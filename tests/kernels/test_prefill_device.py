"""The prompts' attention and its plan on the emulator, against their CPU references."""

from __future__ import annotations

import numpy as np
import pytest
from attention_step import FP8, HALVES, LONG, UNIT_WORDS, Attention
from emulation import Emulate, lagging
from halves import Halves, random
from reference_ops import StepData

from gpu_backend.kernel_abi.flash_parts_sm90 import FLASH_PART_WORDS, FLASH_WARPS
from gpu_backend.kernel_abi.prefill_plan import PrefillUnit

LEAST_PART_KEYS = 384  # that prefill_plan.h allows
LONGER = {"max_context": 1152, "total_pages": 576}
Chunks = list[tuple[int, int, int]]  # row, first position, end position


@pytest.mark.parametrize(
    ("head_dim", "window", "scales"),
    [
        *((head_dim, 0, HALVES) for head_dim in (16, 48, 64, 128, 256)),
        *(
            (head_dim, window, HALVES)
            for head_dim, window in ((16, 1), (16, 5), (96, 65), (192, 100), (256, 20))
        ),
        *((head_dim, 0, FP8) for head_dim in (16, 48, 128)),
        (256, 20, FP8),
    ],
)
@pytest.mark.parametrize(
    ("chunks", "sizes"),
    [
        ([(3, 0, 20), (0, 17, 18), (6, 30, 140), (2, 0, 64), (5, 100, 117)], {"padding": 9}),
        ([(3, 0, 200)], {}),
        pytest.param([(i, 0, 16) for i in range(8)], {"padding": 128}, marks=pytest.mark.slow),
        pytest.param([(1, 300, 313)], {"padding": 3, "page_size": 32}, marks=pytest.mark.slow),
    ],
    ids=["mixed", "one", "short", "chunk"],
)
def test_prefill_attention(
    emulate: Emulate,
    chunks: Chunks,
    sizes: dict[str, int],
    head_dim: int,
    window: int,
    scales: tuple[float, float],
) -> None:
    """Windows shorter and longer than a tile, whose edge lies anywhere in one, and longer than a row."""
    step = Attention(chunks, 4, 2, head_dim, scales, **LONG, **sizes)
    emulate("prefill_attention", *step.arguments, step.out, *step.shape, window, step.n_tokens, 0, None)
    step.check(window)


@pytest.mark.parametrize("scales", [HALVES, FP8])
@pytest.mark.parametrize(("head_dim", "window"), [(16, 0), (64, 65)])
def test_prefill_attention_with_sinks(
    emulate: Emulate, head_dim: int, window: int, scales: tuple[float, float]
) -> None:
    step = Attention([(3, 0, 20), (6, 30, 140), (5, 100, 117)], 4, 2, head_dim, scales, padding=9, **LONG)
    step.sinks = random(4, seed=8, scale=4)
    last = (window, step.n_tokens, 0, step.sinks)
    emulate("prefill_attention", *step.arguments, step.out, *step.shape, *last)
    step.check(window)


@pytest.mark.parametrize("scales", [HALVES, FP8])
@pytest.mark.parametrize("most_parts", [1, 3])
def test_flash_attention_with_sinks(emulate: Emulate, most_parts: int, scales: tuple[float, float]) -> None:
    """A sink counts once, however many parts the keys have."""
    step = Attention([(3, 0, 20), (6, 900, 1010)], 8, 2, 64, scales, padding=5, **LONGER)
    step.sinks = random(8, seed=8, scale=4)
    attend(emulate, step, 4, 3, most_parts)
    step.check()


@pytest.mark.parametrize("unit_tokens", [16, 32, 128])
@pytest.mark.parametrize("most", [1, 40, 200])
def test_prefill_plan(emulate: Emulate, unit_tokens: int, most: int) -> None:
    """E13: every token once, units of one row with its keys, those with the most keys first."""
    rng = np.random.default_rng(most)
    starts, lengths = rng.integers(0, 200, 8), rng.integers(1, most + 1, 8)
    chunks = [(row, int(at), int(at + n)) for row, (at, n) in enumerate(zip(starts, lengths, strict=True))]
    arrays = StepData(chunks, padding=5, **LONG)
    plan = np.full((10 + lengths.sum() // unit_tokens, UNIT_WORDS), 77, np.uint32)
    emulate("prefill_plan", arrays.step_set, plan, unit_tokens, LEAST_PART_KEYS, 1)
    n_units = plan[0, 2]
    assert n_units == sum(-(-n // unit_tokens) for n in lengths)
    assert (plan[1 + n_units :] == 77).all()
    units = plan[1 : 1 + n_units, :5].astype(int)
    tokens = sorted(t for _, first, count, *_ in units for t in range(first, first + count))
    assert tokens == list(range(lengths.sum()))
    assert (units[:, 2] <= unit_tokens).all()
    for row, first, count, keys, past in units:
        assert past == starts[row]
        assert (arrays.token_sequence[first : first + count] == row).all()
        assert arrays.token_position[first + count - 1] == keys - 1
    assert (units[:-1, 3] >= units[1:, 3]).all()


@pytest.mark.parametrize("unit_tokens", [16, 128])
@pytest.mark.parametrize("most", [2, 5])
def test_the_parts_of_a_prefill_plan(emulate: Emulate, unit_tokens: int, most: int) -> None:
    """E13: they are the keys of each unit, each once, and even; what decides how many there are is the unit's
    own. The units with the most keys come first, and the parts of a unit in order."""
    rng = np.random.default_rng(most)
    starts, lengths = rng.integers(0, 1800, 8), rng.integers(1, 200, 8)
    starts[0], lengths[0] = 3 * LEAST_PART_KEYS - 7, 7  # whole parts
    chunks = [(row, int(at), int(at + n)) for row, (at, n) in enumerate(zip(starts, lengths, strict=True))]
    arrays = StepData(chunks, max_context=2048, total_pages=1024)
    n_units = sum(-(-int(n) // unit_tokens) for n in lengths)
    plan = np.zeros(2 + n_units * most, PrefillUnit)
    emulate("prefill_plan", arrays.step_set, plan, unit_tokens, LEAST_PART_KEYS, most)
    n_parts = int(plan[0]["count"])
    assert not plan[1 + n_parts :].view(np.uint32).any()
    parts = plan[1 : 1 + n_parts]
    assert (parts["keys"][:-1] >= parts["keys"][1:]).all()
    heads = np.flatnonzero(parts["part"] == 0)
    assert len(heads) == n_units
    tokens = sorted(t for unit in parts[heads] for t in range(unit["first"], unit["first"] + unit["count"]))
    assert tokens == list(range(lengths.sum()))
    for head in heads:
        keys, n = int(parts[head]["keys"]), int(parts[head]["parts"])
        assert n == min(most, -(-keys // LEAST_PART_KEYS))
        unit = parts[head : head + n]
        assert unit["part"].tolist() == list(range(n))
        for field in ("sequence", "first", "count", "keys", "past", "parts"):
            assert (unit[field] == unit[0][field]).all()
        bounds = [*unit["first_tile"].tolist(), -(-keys // 128)]
        assert bounds[0] == 0
        assert bounds[1:] == unit["end_tile"].tolist()
        assert n == 1 or np.diff(bounds).min() >= 2
        assert np.ptp(np.diff(bounds)) <= 1


def attend(
    emulate: Emulate, step: Attention, pack: int, blocks: int, most_parts: int = 1, after_decode: int = 0
) -> None:
    """Attention of the step's prompts into step.out; with parts, all blocks run in turns."""
    heads, _, head_dim = step.shape
    plan = np.zeros((1 + 2 * step.n_tokens * most_parts, UNIT_WORDS), np.uint32)
    emulate("prefill_plan", step.arrays.step_set, plan, 128 // pack, LEAST_PART_KEYS, most_parts)
    rows = step.n_tokens * heads * most_parts
    parts = np.full((rows, head_dim + FLASH_PART_WORDS), np.nan, np.float32)
    arrivals = np.zeros((step.n_tokens, heads // pack, FLASH_WARPS), np.uint32)
    n_cells = step.caches[0].shape[0] * int(step.arrays.tables["page_size"])
    inputs = (step.arrays.tables, step.after_rope, step.cache, *step.scales, step.out, plan)
    sizes = (*step.shape, step.n_tokens, n_cells, pack, blocks, after_decode)
    emulate("flash_attention", *inputs, *sizes, parts, arrivals, most_parts, step.sinks)
    assert not arrivals.any()


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "pack", "scales"),
    [
        (4, 1, 128, 4, HALVES),
        (4, 1, 128, 4, FP8),
        pytest.param(6, 2, 64, 1, HALVES, marks=pytest.mark.slow),
        pytest.param(6, 2, 64, 1, FP8, marks=pytest.mark.slow),
        pytest.param(4, 2, 128, 2, HALVES, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("chunks", "sizes"),
    [
        ([(3, 0, 20), (0, 17, 18), (6, 30, 140), (2, 0, 64), (5, 100, 117)], {"padding": 9}),
        ([(3, 0, 300)], {}),
        ([(1, 300, 313), (2, 255, 257)], {"padding": 3, "page_size": 32}),
    ],
    ids=["mixed", "one", "chunks"],
)
def test_flash_attention(
    emulate: Emulate,
    chunks: Chunks,
    sizes: dict[str, int],
    heads: int,
    kv_heads: int,
    head_dim: int,
    pack: int,
    scales: tuple[float, float],
    blocks: int,
) -> None:
    step = Attention(chunks, heads, kv_heads, head_dim, scales, **LONG, **sizes)
    attend(emulate, step, pack, blocks)
    step.check()


@pytest.mark.parametrize("scales", [HALVES, FP8])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim", "pack"), [(4, 1, 128, 4), (2, 2, 64, 1)])
@pytest.mark.parametrize(
    "chunks",
    [
        # One part to three, of several units; the last tile is partial, or has a single key, or is whole.
        [(3, 0, 20), (0, 480, 500), (6, 1000, 1037), (2, 763, 768), (5, 512, 513)],
        # The second part of 128 tokens begins at the last key but one that the first of them sees.
        [(1, 257, 385), (4, 380, 400)],
        # Whose keys are of this step in all parts but the first, which an fp8 cache converts.
        [(7, 100, 1050)],
    ],
    ids=["several", "edge", "fresh"],
)
def test_flash_attention_in_parts(
    emulate: Emulate,
    chunks: Chunks,
    heads: int,
    kv_heads: int,
    head_dim: int,
    pack: int,
    scales: tuple[float, float],
) -> None:
    step = Attention(chunks, heads, kv_heads, head_dim, scales, padding=3, **LONGER)
    attend(emulate, step, pack, blocks=4, most_parts=3)
    step.check()


def alone(step: Attention, chunks: Chunks, index: int) -> tuple[Attention, slice]:
    """A step of one of the chunks, with the same queries, keys and values, and where `step` has its
    tokens."""
    before = sum(end - first for _, first, end in chunks[:index])
    _, first, end = chunks[index]
    tokens = slice(before, before + end - first)
    of_one = Attention(chunks[index : index + 1], *step.shape, step.scales, **LONGER)
    of_one.after_rope[:], of_one.cache[:] = step.after_rope[tokens], step.cache
    return of_one, tokens


def make_order_matter(step: Attention, sequence: int, end: int) -> None:
    """All keys of a sequence weigh the same, and the large values of its first part are those of its second
    with the other sign: where these two are not added up first, little is left of the values of the third."""
    kv_heads, head_dim = step.cache.shape[2], step.cache.shape[4]
    large = random(kv_heads, head_dim, seed=9, scale=1e4)
    if step.scales != HALVES:
        large = np.where(large >> 15, 0xFE, 0x7E)  # -448 and 448
    sign = 0x8000 if step.scales == HALVES else 0x80
    for position in range(end):
        page, cell = step.arrays.block_table[sequence, position // 16], position % 16
        step.cache[0, page, :, cell] = 0
        if position < 2 * LEAST_PART_KEYS:
            step.cache[1, page, :, cell] = large ^ (sign if position < LEAST_PART_KEYS else 0)


@pytest.mark.parametrize("scales", [HALVES, FP8])
@pytest.mark.parametrize("order_matters", [False, True])
def test_parts_give_the_same_bits_in_any_company(
    emulate: Emulate, order_matters: bool, scales: tuple[float, float]
) -> None:
    """E13: whatever other prompts the step has, how many blocks there are, and which of them comes last."""
    chunks = [(3, 0, 20), (0, 480, 500), (6, 1120, 1152)]
    step = Attention(chunks, 4, 1, 128, scales, **LONGER)
    if order_matters:
        make_order_matter(step, 6, 1152)
    attend(emulate, step, 4, blocks=5, most_parts=3)
    results: list[Halves] = []
    for block, blocks in ((0, 1), (0, 3), (1, 3), (2, 3), (5, 6)):
        of_one, tokens = alone(step, chunks, 2)
        with lagging(emulate, block=block):
            attend(emulate, of_one, 4, blocks, most_parts=3)
        results.append(of_one.out)
    for result in results:
        np.testing.assert_array_equal(result, step.out[tokens])


@pytest.mark.parametrize("scales", [HALVES, FP8])
def test_parts_in_a_mixed_step(emulate: Emulate, scales: tuple[float, float]) -> None:
    """The prompts have the bits of a step of their own, and the rows that decode are left alone."""
    prompts, rows = [(0, 480, 500), (6, 1000, 1037)], [(4, 90, 91), (3, 600, 601)]
    step = Attention(prompts, 4, 1, 128, scales, **LONGER)
    attend(emulate, step, 4, blocks=4, most_parts=3)
    mixed = Attention([*rows, *prompts], 4, 1, 128, scales, padding=4, n_decode=len(rows), **LONGER)
    end = len(rows) + step.n_tokens
    mixed.after_rope[len(rows) : end], mixed.cache[:] = step.after_rope, step.cache
    untouched = mixed.out.copy()
    attend(emulate, mixed, 4, blocks=5, most_parts=3, after_decode=1)
    np.testing.assert_array_equal(mixed.out[len(rows) : end], step.out)
    np.testing.assert_array_equal(mixed.out[: len(rows)], untouched[: len(rows)])
    np.testing.assert_array_equal(mixed.out[end:], untouched[end:])
