"""Attention of a verify step on the emulator: rows of one sequence that attend to each other's keys, against
the CPU references and against decode steps one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from attention_step import FP8, HALVES
from emulation import EPS, Emulate, lagging
from halves import Halves, random
from numpy.typing import NDArray
from reference_ops import NO_GROWTH, Floats
from test_attention_device import StreamStep

from gpu_backend.kernel_abi.attention_plan import KvSplit
from gpu_backend.kernel_abi.decode_unit_sm90 import UNIT_HEADS, WIDE_UNIT_HEADS
from gpu_backend.ops.attention import Heads
from gpu_backend.ops.decode_attention import sharing_rows, unit_heads

# Sequences, and the positions of their new tokens: none before them, across a tile and a page, within a tile,
# across the first key of a split, one row, up to a tile's end.
CHUNKS = [(3, 0, 5), (0, 130, 145), (6, 400, 403), (1, 63, 66), (2, 127, 128), (4, 75, 80)]
CUTS = [((1, 64, 512, 4), 3), ((64, 16, 512, 64), 7)]


class VerifyStep(StreamStep):
    """A step in which the tokens of each chunk are rows."""

    def __init__(
        self,
        chunks: list[tuple[int, int, int]],
        heads: int,
        kv_heads: int,
        head_dim: int,
        bounded: bool = False,
        scales: tuple[float, float] = HALVES,
        growth: tuple[float, int] = NO_GROWTH,
        sinks: bool = False,
    ) -> None:
        """`bounded`: in a window, and with a bias."""
        window = 40 if bounded else 0
        choices = {"biased": bounded, "window": window, "scales": scales, "growth": growth, "sinks": sinks}
        super().__init__(chunks, heads, kv_heads, head_dim, padding=2, **choices)
        arrays, sizes = self.step.arrays, [end - first for _, first, end in chunks]
        self.firsts = np.repeat(np.cumsum([0, *sizes[:-1]]), sizes).astype(np.uint32)
        self.rows = np.arange(len(self.firsts), dtype=np.uint32)
        arrays.head["batch_size"] = arrays.head["n_decode"] = len(self.rows)
        arrays.step_set["batch_first"] = self.firsts.ctypes.data
        arrays.step_set["batch_last"] = self.rows.ctypes.data
        self.batch_slots = len(self.rows) + 2
        shape = Heads(heads, kv_heads, head_dim)
        self.most_sharing, self.unit_heads = sharing_rows(shape), unit_heads(shape, verifies=True)

    def attend(
        self,
        emulate: Emulate,
        turns: Floats,
        norms: list[Halves | None],
        partial: NDArray[np.uint32],
        out: Halves,
        sizes: tuple[int, ...],
        kernel: str = "verify_attention",
    ) -> None:
        """Behind the kernel that writes the keys and values, which attention does not write again."""
        arrays = self.step.arrays
        inputs = (arrays.step_set, arrays.tables, turns, self.step.qkv, self.bias, norms[1], EPS)
        caches = (self.cache[0], self.cache[1], *self.scales)
        emulate("append_kv", *inputs, *caches, *self.step.shape, self.batch_slots)
        appended = self.cache.copy()
        super().attend(emulate, turns, norms, partial, out, (*sizes, self.unit_heads), kernel)
        np.testing.assert_array_equal(self.cache, appended)


def norms_of(head_dim: int, normed: bool) -> list[Halves | None]:
    return [random(head_dim, seed=s) if normed else None for s in (5, 6)]


@pytest.mark.parametrize(("cut", "blocks"), CUTS, ids=["whole", "finest"])
@pytest.mark.parametrize("scales", [HALVES, FP8])
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"),
    [(6, 2, 16), (2, 2, 16), (12, 1, 16), (4, 1, 128), pytest.param(4, 1, 256, marks=pytest.mark.slow)],
)
def test_rows_attend_to_the_keys_of_those_before_them(
    emulate: Emulate,
    heads: int,
    kv_heads: int,
    head_dim: int,
    bounded: bool,
    scales: tuple[float, float],
    cut: tuple[int, int, int, int],
    blocks: int,
) -> None:
    step, norms = VerifyStep(CHUNKS, heads, kv_heads, head_dim, bounded, scales), norms_of(head_dim, bounded)
    step.check(step.run(emulate, cut, blocks, norms), norms)


@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 2), (2, 2)])
def test_queries_that_grow_with_their_positions(emulate: Emulate, heads: int, kv_heads: int) -> None:
    step, norms = VerifyStep(CHUNKS, heads, kv_heads, 16, True, growth=(0.4, 30)), norms_of(16, True)
    step.check(step.run(emulate, *CUTS[1], norms), norms)


@pytest.mark.parametrize(("cut", "blocks"), CUTS, ids=["whole", "finest"])
@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 2), (2, 2), (8, 1)])
def test_rows_with_sinks(
    emulate: Emulate, heads: int, kv_heads: int, cut: tuple[int, int, int, int], blocks: int
) -> None:
    step, norms = VerifyStep(CHUNKS, heads, kv_heads, 16, True, sinks=True), norms_of(16, True)
    step.check(step.run(emulate, cut, blocks, norms), norms)


@pytest.mark.parametrize(("cut", "blocks"), CUTS, ids=["whole", "finest"])
@pytest.mark.parametrize("scales", [HALVES, FP8])
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 2), (2, 2), (5, 1), (20, 1)])
def test_rows_are_those_of_decode_steps_bit_by_bit(
    emulate: Emulate,
    heads: int,
    kv_heads: int,
    bounded: bool,
    scales: tuple[float, float],
    cut: tuple[int, int, int, int],
    blocks: int,
) -> None:
    """E16: with the same limits, steps of one token each leave the same outputs, keys and values."""
    shape, norms = (heads, kv_heads, 16), norms_of(16, bounded)
    step = VerifyStep(CHUNKS, *shape, bounded, scales)
    qkv, cache = step.step.qkv.copy(), step.cache.copy()
    out = step.run(emulate, cut, blocks, norms)
    firsts = dict(zip((row for row, _, _ in CHUNKS), np.unique(step.firsts), strict=True))
    for k in range(max(end - first for _, first, end in CHUNKS)):
        chunks = [(row, first + k, first + k + 1) for row, first, end in CHUNKS if first + k < end]
        rows = [firsts[row] + k for row, _, _ in chunks]
        one = StreamStep(chunks, *shape, biased=bounded, window=step.window, scales=scales)
        one.step.qkv[:], one.cache[:] = qkv[rows], cache
        np.testing.assert_array_equal(one.run(emulate, cut, blocks, norms), out[rows])
        cache = one.cache
    np.testing.assert_array_equal(cache, step.cache)


@pytest.mark.parametrize("scales", [HALVES, FP8])
@pytest.mark.parametrize("bounded", [False, True])
def test_rows_with_the_kernels_of_prompts(
    emulate: Emulate, bounded: bool, scales: tuple[float, float]
) -> None:
    """On GPUs other than Hopper: RoPE writes the keys of all rows before any row attends."""
    chunks = [*CHUNKS, (5, 200, 240)]  # more rows than a block takes
    step, norms = VerifyStep(chunks, 4, 2, 16, bounded, scales), norms_of(16, bounded)
    out = np.full_like(step.step.out, 0x40E0)
    step.run_plainly(emulate, out, norms, decodes=True)
    step.check(out, norms)


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "most"), [(8, 8, 8), (8, 4, 4), (8, 2, 4), (5, 1, 3), (8, 1, 2), (12, 1, 1)]
)
def test_rows_that_are_split_alike_share_their_splits(
    emulate: Emulate, heads: int, kv_heads: int, most: int, bounded: bool
) -> None:
    """Each row has one run of splits, alone or with neighbours, that are all of its cached keys."""
    step = VerifyStep(CHUNKS, heads, kv_heads, 16, bounded)
    step.run(emulate, (4, 16, 64, 64), 3, [None, None])
    n_splits, positions = int(step.plan[0, 0]), step.step.arrays.token_position.tolist()
    names = ["index", "first", "keys", "row", "n_splits", "sharing"]
    splits = sorted(step.plan.view(KvSplit).reshape(-1)[names][1 : 1 + n_splits].tolist())
    shared = 0
    for row, first_row in enumerate(step.firsts.tolist()):
        of_row = [split for split in splits if split[3] <= row < split[3] + (split[5] >> 16)]
        indices, firsts, n_keys, leaders, counts, sharing = zip(*of_row, strict=True)
        n_rows = {n >> 16 for n in sharing}
        assert list(indices) == list(range(counts[0]))
        assert len({*leaders}) == len({*counts}) == len(n_rows) == 1
        assert first_row <= leaders[0]
        assert max(n_rows) <= most
        shared += max(n_rows) > 1
        ends = [first + keys for first, keys in zip(firsts, n_keys, strict=True)]
        assert list(firsts[1:]) == ends[:-1]
        assert ends[-1] == positions[leaders[0]] + max(n_rows) - 1
        seen = max(0, positions[row] + 1 - step.window) if bounded else 0
        assert firsts[0] == seen // 16 * 16
    assert (shared > len(step.rows) // 2) == (most > 1)


@pytest.mark.slow
@pytest.mark.parametrize(("heads", "most"), [(4, UNIT_HEADS), (8, WIDE_UNIT_HEADS)])
@pytest.mark.parametrize("warp", [0, 2, 5, 13])  # that copies, attends, has a query, the new key
def test_a_warp_that_lags_behind_in_a_verify_step(emulate: Emulate, warp: int, heads: int, most: int) -> None:
    """E17."""
    step = VerifyStep([(i, 18 + i, 22 + i) for i in range(4)], heads, 2, 16)
    assert step.unit_heads == most
    with lagging(emulate, warp=warp):
        out = step.run(emulate, (2, 16, 512, 4), 1, [None, None])
    step.check(out, [None, None])
