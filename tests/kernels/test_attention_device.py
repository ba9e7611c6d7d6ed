"""Decode attention, plan and stream, on the emulator, whose bulk copies arrive late and in any order, against
its CPU references."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from attention_step import FP8, HALVES, LONG, UNIT_WORDS, Attention
from emulation import EPS, Emulate, lagging
from halves import NAN, TOLERANCE, Halves, assert_close, floats, random
from numpy.typing import NDArray
from reference_ops import NO_GROWTH, Floats, rope_table

PIECE_WORDS = 8
Cache = NDArray[np.uint16] | NDArray[np.uint8]
ROWS = [(3, 0, 1), (0, 130, 131), (6, 400, 401), (1, 64, 65), (2, 127, 128), (4, 80, 81), (5, 15, 16)]


def cache_map(keys: Cache) -> NDArray[np.uint64]:
    """A layer's keys, and values right after them, as the emulator copies tiles of both (emulated_ptx.h)."""
    row_bytes = keys.shape[-1] * keys.itemsize
    span = next(n for n in (128, 64, 32, 16) if row_bytes % n == 0)
    return np.array([keys.ctypes.data, keys.nbytes // row_bytes, row_bytes, span], np.uint64)


class StreamStep:
    """A step of sequences that decode, and perhaps prompts behind them, over a layer's cache as the engine
    lays it out: keys, and values right after them."""

    def __init__(
        self,
        rows: list[tuple[int, int, int]],
        heads: int,
        kv_heads: int,
        head_dim: int,
        prompts: Sequence[tuple[int, int, int]] = (),
        biased: bool = False,
        window: int = 0,
        scales: tuple[float, float] = HALVES,
        growth: tuple[float, int] = NO_GROWTH,
        sinks: bool = False,
        **sizes: int,
    ):
        chunks = [*rows, *prompts]
        sizes = {**LONG, **sizes, "n_decode": len(rows)}
        self.step = step = Attention(chunks, heads, kv_heads, head_dim, scales, **sizes)
        step.sinks = random(heads, seed=8, scale=4) if sinks else None
        page_size, new = int(step.arrays.tables["page_size"]), []
        for row, first, end in chunks:
            pages, cells = np.divmod(np.arange(first, end), page_size)
            new.append((step.arrays.block_table[row, pages], cells))
            for cache in step.caches:  # not yet written
                cache[new[-1][0], :, cells] = step.none
        self.new = new[: len(rows)]  # where the sequences that decode write
        self.scales, self.cache, self.none = scales, step.cache, step.none
        self.qkv, self.before = floats(step.qkv), step.values()
        self.rope = rope_table(head_dim)
        self.bias = random(heads + 2 * kv_heads, head_dim, seed=7) if biased else None
        self.window, self.most_sharing, self.growth = window, 1, growth
        self.batch_slots, self.plan = len(rows) + 2, np.zeros((1, PIECE_WORDS), np.uint32)

    def run(
        self,
        emulate: Emulate,
        cut: tuple[int, int, int, int],
        blocks: int,
        norms: list[Halves | None],
    ) -> Halves:
        """`cut`: usual, least, longest, most of KvSplitLimits."""
        step, (heads, _, head_dim), most = self.step, self.step.shape, cut[3]
        self.plan = np.full((1 + max(self.batch_slots * most, blocks), PIECE_WORDS), 0xFFFFFFFF, np.uint32)
        turns = np.full((self.batch_slots, head_dim), np.nan, np.float32)
        partial = np.zeros(self.batch_slots * heads * most * (head_dim + 4), np.uint32)
        out = np.full_like(step.out, 0x40E0)  # 7
        angles = (self.rope, turns, head_dim, self.window, self.most_sharing, self.batch_slots)
        emulate("attention_plan", step.arrays.step_set, *cut, self.plan, *angles)
        self.attend(emulate, turns, norms, partial, out, (*step.shape, self.window, most, blocks))
        assert not partial.any()
        return out

    def attend(
        self,
        emulate: Emulate,
        turns: Floats,
        norms: list[Halves | None],
        partial: NDArray[np.uint32],
        out: Halves,
        sizes: tuple[int, ...],
        kernel: str = "decode_attention",
    ) -> None:
        """With the plan that has been made."""
        arrays, where = self.step.arrays, cache_map(self.cache[0])
        inputs = (arrays.step_set, arrays.tables, self.plan, turns, where, self.step.qkv, self.bias)
        emulate(
            kernel, *inputs, *norms, EPS, self.cache[0], self.cache[1], *self.scales, partial, out,
            *sizes, *self.growth, self.step.sinks,
        )  # fmt: skip

    def run_plainly(
        self, emulate: Emulate, out: Halves, norms: list[Halves | None], decodes: bool, flash: bool = False
    ) -> None:
        """RoPE and attention of the prompts, or of the sequences that decode."""
        step, arrays, n_tokens = self.step, self.step.arrays, self.step.n_tokens
        inputs, sizes = (arrays.step_set, arrays.tables, step.qkv), (*self.scales, *step.shape)
        caches = (self.cache[0], self.cache[1])
        sizes = (*sizes, n_tokens, int(decodes), *self.growth)
        emulate("rope", *inputs, self.bias, *norms, EPS, self.rope, *caches, *sizes)
        if not flash:
            last = (*step.shape, self.window, n_tokens, int(decodes), step.sinks)
            emulate("prefill_attention", *inputs, *caches, *self.scales, out, *last)
            return
        plan = np.zeros((1 + n_tokens, UNIT_WORDS), np.uint32)
        emulate("prefill_plan", arrays.step_set, plan, 128, 384, 1)
        cells = step.caches[0].size // step.shape[1] // step.shape[2]
        inputs = (arrays.tables, step.qkv, self.cache, *self.scales, out, plan)
        emulate("flash_attention", *inputs, *step.shape, n_tokens, cells, 1, 3, 1, None, None, 1, step.sinks)

    def check(self, out: Halves, norms: list[Halves | None]) -> None:
        step = self.step
        qkv, expected = self.qkv.copy(), [cache.copy() for cache in self.before]
        weights = [None if weight is None else floats(weight) for weight in (self.bias, *norms)]
        rope = (qkv, *weights, EPS, self.rope, *expected, *self.scales)
        step.arrays.call("rope", *rope, *step.shape, step.n_tokens, *self.growth)
        reference = np.full(out.shape, 7, np.float32)
        # In fp8 a key may have become the neighbour, as below, which is no matter of attention.
        seen = expected if self.scales == HALVES else step.values()
        step.arrays.call(
            "attention", qkv, *seen, reference, *step.shape, self.window, step.float_sinks, step.n_tokens
        )
        assert_close(floats(out), reference, 2 * TOLERANCE)
        for got, cache in zip(self.step.values(), expected, strict=True):
            written = ~np.isnan(cache)
            np.testing.assert_array_equal(~np.isnan(got), written)  # E3: nothing else is written
            if self.scales == HALVES:
                assert_close(got[written], cache[written])
                continue
            apart = np.abs(got[written] - cache[written])  # rounded to halves before, some become neighbours
            assert (apart <= np.abs(cache[written]) / 8 + TOLERANCE / 10 * cache[written].max()).all()
            assert np.count_nonzero(apart) <= 0.05 * cache[0, 0, 0].size * step.n_tokens * step.shape[1] + 1


@pytest.mark.parametrize(("normed", "scales"), [(False, HALVES), (True, HALVES), (True, FP8)])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "flash"),
    [(6, 2, 16, False), (8, 1, 64, True), (4, 2, 128, True), (4, 2, 128, False)],
)
def test_attention_of_a_mixed_step(
    emulate: Emulate,
    heads: int,
    kv_heads: int,
    head_dim: int,
    flash: bool,
    normed: bool,
    scales: tuple[float, float],
) -> None:
    """Rows that decode and prompts: each kernel attends to its own tokens, and leaves the others alone."""
    prompts = [(7, 0, 70), (4, 81, 120), (0, 131, 132)]
    rows = [(3, 0, 1), (6, 400, 401), (1, 64, 65), (2, 127, 128)]
    step = StreamStep(rows, heads, kv_heads, head_dim, prompts, padding=2, scales=scales)
    norms = [random(head_dim, seed=s) if normed else None for s in (5, 6)]
    out = step.run(emulate, (2, 64, 512, 4), 5, norms)
    decoded, keys = out[: len(rows)].copy(), [step.cache[:, page, :, cell].copy() for page, cell in step.new]
    for page, cell in step.new:
        step.cache[:, page, :, cell] = step.none
    step.run_plainly(emulate, out, norms, False, flash)
    for (page, cell), written in zip(step.new, keys, strict=True):
        assert (step.cache[:, page, :, cell] == step.none).all()
        step.cache[:, page, :, cell] = written
    np.testing.assert_array_equal(out[: len(rows)], decoded)
    step.check(out, norms)


@pytest.mark.parametrize(("scales", "window"), [(HALVES, 0), (HALVES, 40), (FP8, 0)])
def test_rows_that_decode_with_the_kernels_of_prompts(
    emulate: Emulate, scales: tuple[float, float], window: int
) -> None:
    """On GPUs other than Hopper: each call serves its own tokens, and leaves the others alone."""
    rows = [(3, 0, 1), (6, 400, 401), (1, 64, 65), (2, 127, 128)]
    step = StreamStep(
        rows, 4, 2, 16, [(7, 0, 70), (4, 81, 120)], biased=True, window=window, padding=2, scales=scales
    )
    out, norms = np.full_like(step.step.out, 0x40E0), [random(16, seed=s) for s in (5, 6)]
    step.run_plainly(emulate, out, norms, True)
    assert (out[len(rows) :] == 0x40E0).all()
    decoded = out[: len(rows)].copy()
    step.run_plainly(emulate, out, norms, False)
    np.testing.assert_array_equal(out[: len(rows)], decoded)
    step.check(out, norms)


@pytest.mark.parametrize("normed", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("cut", "blocks"),
    [
        ((1, 64, 512, 4), 3),
        ((4, 64, 128, 64), 5),
        ((2, 16, 512, 4), 2),
        ((64, 16, 512, 64), 1),
        pytest.param((2, 32, 64, 3), 40, marks=pytest.mark.slow),
    ],
    ids=["whole", "split", "halves", "finest", "capped"],
)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"),
    [
        (6, 2, 16),
        (4, 4, 48),
        (8, 1, 64),
        pytest.param(32, 4, 128, marks=pytest.mark.slow),
        pytest.param(24, 2, 64, marks=pytest.mark.slow),
        (4, 2, 128),
    ],
)
def test_decode_attention(
    emulate: Emulate,
    heads: int,
    kv_heads: int,
    head_dim: int,
    cut: tuple[int, int, int, int],
    blocks: int,
    normed: bool,
) -> None:
    """With its RoPE: the new key and value go into the cache, whose cells beyond a row's keys hold NaN. More
    and fewer blocks than units; the ring's stages are used again and again."""
    step = StreamStep(ROWS, heads, kv_heads, head_dim, padding=2)
    norms = [random(head_dim, seed=s) if normed else None for s in (5, 6)]
    step.check(step.run(emulate, cut, blocks, norms), norms)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"), [(2, 1, 80), (2, 2, 96), (2, 1, 192), (2, 2, 256), (8, 1, 256)]
)
@pytest.mark.parametrize("cut", [(4, 64, 128, 64), (64, 16, 512, 64)], ids=["split", "finest"])
def test_decode_attention_of_other_head_sizes(
    emulate: Emulate, heads: int, kv_heads: int, head_dim: int, cut: tuple[int, int, int, int]
) -> None:
    step = StreamStep(ROWS, heads, kv_heads, head_dim, padding=2)
    norms = [random(head_dim, seed=s) for s in (5, 6)]
    step.check(step.run(emulate, cut, 5, norms), norms)


@pytest.mark.parametrize(("normed", "window"), [(False, 0), (True, 0), (False, 40)])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"),
    [(6, 2, 16), (4, 2, 128), pytest.param(4, 2, 256, marks=pytest.mark.slow)],
)
def test_decode_attention_with_a_bias(
    emulate: Emulate, heads: int, kv_heads: int, head_dim: int, normed: bool, window: int
) -> None:
    step = StreamStep(ROWS, heads, kv_heads, head_dim, padding=2, biased=True, window=window)
    norms = [random(head_dim, seed=s) if normed else None for s in (5, 6)]
    step.check(step.run(emulate, (2, 64, 512, 4), 5, norms), norms)


@pytest.mark.parametrize("scales", [HALVES, FP8])
@pytest.mark.parametrize("window", [0, 40])
@pytest.mark.parametrize(
    ("cut", "blocks"), [((1, 64, 512, 4), 3), ((64, 16, 512, 64), 5)], ids=["whole", "finest"]
)
def test_decode_attention_with_sinks(
    emulate: Emulate, cut: tuple[int, int, int, int], blocks: int, window: int, scales: tuple[float, float]
) -> None:
    """A sink counts once, however many splits a row has."""
    choices = {"biased": True, "window": window, "scales": scales, "sinks": True}
    step, norms = StreamStep(ROWS, 6, 2, 16, padding=2, **choices), [None, None]
    step.check(step.run(emulate, cut, blocks, norms), norms)


def test_sinks_that_outweigh_all_keys(emulate: Emulate) -> None:
    step, norms = StreamStep(ROWS, 6, 2, 16, padding=2, biased=True, sinks=True), [None, None]
    step.step.sinks = random(6, seed=8, scale=1e6)
    out = step.run(emulate, (64, 16, 512, 64), 5, norms)
    step.check(out, norms)
    assert (floats(out)[: len(ROWS), floats(step.step.sinks) > 1e3] == 0).all()


@pytest.mark.parametrize("window", [0, 40])
def test_sinks_with_the_kernels_of_prompts(emulate: Emulate, window: int) -> None:
    step, norms = StreamStep(ROWS, 6, 2, 16, padding=2, window=window, sinks=True), [None, None]
    out = np.full_like(step.step.out, 0x40E0)
    step.run_plainly(emulate, out, norms, decodes=True)
    step.check(out, norms)


@pytest.mark.parametrize("plainly", [False, True])
@pytest.mark.parametrize("scales", [HALVES, FP8])
def test_queries_grow_with_their_positions(
    emulate: Emulate, scales: tuple[float, float], plainly: bool
) -> None:
    choices = {"biased": True, "window": 300, "growth": (0.4, 30), "scales": scales}
    step, norms = StreamStep(ROWS, 6, 2, 16, padding=2, **choices), [None, None]
    if not plainly:
        step.check(step.run(emulate, (2, 64, 512, 4), 5, norms), norms)
        return
    out = np.full_like(step.step.out, 0x40E0)
    step.run_plainly(emulate, out, norms, decodes=True)
    step.check(out, norms)


@pytest.mark.parametrize("window", [1, 5, 17, 65, 130, 1000])
@pytest.mark.parametrize(
    ("cut", "blocks"),
    [pytest.param((1, 64, 512, 4), 3, marks=pytest.mark.slow), ((64, 16, 512, 64), 5)],
    ids=["whole", "finest"],
)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"),
    [(6, 2, 16), (8, 1, 128), pytest.param(8, 1, 256, marks=pytest.mark.slow)],
)
def test_decode_attention_in_a_window(
    emulate: Emulate,
    heads: int,
    kv_heads: int,
    head_dim: int,
    cut: tuple[int, int, int, int],
    blocks: int,
    window: int,
) -> None:
    """Shorter than a tile, across pieces, and longer than a row: what lies before it is not read, but for the
    rest of its first tile."""
    step = StreamStep(ROWS, heads, kv_heads, head_dim, padding=2, window=window)
    for row, first, _ in ROWS:
        tile = max(0, first + 1 - window) // 16
        before = step.step.arrays.block_table[row, :tile]
        step.cache[:, before] = step.none
        step.before = step.step.values()
    step.check(step.run(emulate, cut, blocks, [None, None]), [None, None])


@pytest.mark.slow
@pytest.mark.parametrize(
    "warp", [0, 2, 5, 12, 13, 14]
)  # that copies, attends, has a query, the new key and value
def test_a_warp_that_lags_behind(emulate: Emulate, warp: int) -> None:
    """E17: the others wait for it wherever a barrier's parity would not tell two units apart; short rows make
    short units, of which a block has many, whole and in pieces."""
    for cut in ((1, 64, 512, 4), (2, 16, 512, 4)):
        step = StreamStep([(i, 18 + i, 19 + i) for i in range(4)], 4, 2, 16, padding=2)
        with lagging(emulate, warp=warp):
            out = step.run(emulate, cut, 1, [None, None])
        step.check(out, [None, None])


def test_more_pieces_than_lanes_of_a_warp(emulate: Emulate) -> None:
    step = StreamStep([(2, 600, 601), (0, 40, 41)], 8, 1, 64, max_context=1024, total_pages=512)
    step.check(step.run(emulate, (64, 16, 512, 64), 3, [None, None]), [None, None])


def test_pieces_that_are_all_zero(emulate: Emulate) -> None:
    """A word that is 0 has not been written (ll_protocol.h), so zeros are written otherwise."""
    heads, kv_heads = 4, 2
    step = StreamStep(ROWS, heads, kv_heads, 64, padding=2)
    step.cache[1][step.cache[1] != NAN] = 0
    step.step.qkv[:, heads + kv_heads :] = 0
    step.qkv, step.before[1] = floats(step.step.qkv), floats(step.cache[1])
    out = step.run(emulate, (4, 64, 128, 64), 5, [None, None])
    step.check(out, [None, None])
    assert not floats(out[: len(ROWS)]).any()
