"""The prompts' attention and its plan on the emulator, against their CPU references."""

from __future__ import annotations

import numpy as np
import pytest
from attention_step import FP8, HALVES, LONG, UNIT_WORDS, Attention
from emulation import Emulate
from reference_ops import StepData


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
    chunks: list[tuple[int, int, int]],
    sizes: dict[str, int],
    head_dim: int,
    window: int,
    scales: tuple[float, float],
) -> None:
    """Windows shorter and longer than a tile, whose edge lies anywhere in one, and longer than a row."""
    step = Attention(chunks, 4, 2, head_dim, scales, **LONG, **sizes)
    emulate("prefill_attention", *step.arguments, step.out, *step.shape, window, step.n_tokens, 0)
    step.check(window)


@pytest.mark.parametrize("unit_tokens", [16, 32, 128])
@pytest.mark.parametrize("most", [1, 40, 200])
def test_prefill_plan(emulate: Emulate, unit_tokens: int, most: int) -> None:
    """E13: every token once, units of one row with its keys, those with the most keys first."""
    rng = np.random.default_rng(most)
    starts, lengths = rng.integers(0, 200, 8), rng.integers(1, most + 1, 8)
    chunks = [(row, int(at), int(at + n)) for row, (at, n) in enumerate(zip(starts, lengths, strict=True))]
    arrays = StepData(chunks, padding=5, **LONG)
    plan = np.full((10 + lengths.sum() // unit_tokens, UNIT_WORDS), 77, np.uint32)
    emulate("prefill_plan", arrays.step_set, plan, unit_tokens)
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
    chunks: list[tuple[int, int, int]],
    sizes: dict[str, int],
    heads: int,
    kv_heads: int,
    head_dim: int,
    pack: int,
    scales: tuple[float, float],
    blocks: int,
) -> None:
    step = Attention(chunks, heads, kv_heads, head_dim, scales, **LONG, **sizes)
    plan = np.zeros((1 + step.n_tokens + len(chunks), UNIT_WORDS), np.uint32)
    emulate("prefill_plan", step.arrays.step_set, plan, 128 // pack)
    n_cells = 256 * int(step.arrays.tables["page_size"])
    inputs = (step.arrays.tables, step.after_rope, step.cache, *step.scales, step.out, plan)
    emulate("flash_attention", *inputs, *step.shape, step.n_tokens, n_cells, pack, blocks, 0)
    step.check()
