"""The CUDA kernels, run on the CPU by an emulator of CUDA's threads, against their CPU references.

What the emulator cannot show: memory ordering between blocks, real float16, speed. tests/gpu runs the same
kernels on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from halves import NAN, TOLERANCE, assert_close, floats, random
from products import OUTPUTS, Product
from reference_ops import GELU_TANH, SILU, Floats, StepData, call, rope_table
from weights import FORMS, weights

from gpu_backend import abi
from gpu_backend.kernel_abi.prefill_plan import PrefillUnit
from gpu_backend.models.fp8 import from_fp8, to_fp8
from gpu_backend.models.quantization import ScaleForm
from ringbuffer.extents import controls

EPS = 1e-5
CHUNKS = [(3, 0, 20), (0, 17, 18), (6, 30, 40)]
LONG = {"max_context": 512, "total_pages": 256}
FP8_NAN = 0x7F
UNIT_WORDS = PrefillUnit.itemsize // 4
HALVES = (0.0, 0.0)  # the scales of keys and values in a cache that is not in fp8
FP8 = (0.75, 0.004)  # values reach beyond what the second allows
ANY = 0xFFFFFFFF  # kAny of emulator/threads.h

Emulate = Callable[..., None]


@contextmanager
def lagging(emulate: Emulate, block: int = ANY, warp: int = ANY) -> Iterator[None]:
    """Threads that run in every hundredth round only."""
    emulate("slow", block, warp, 100)
    try:
        yield
    finally:
        emulate("slow", ANY, ANY, 1)


def test_gate_opens_when_the_step_before_is_complete(emulate: Emulate) -> None:
    """E2."""
    arrays = StepData(CHUNKS)
    arrays.head["id"], arrays.head["fault"], arrays.completed[0] = 5, 1, 4
    emulate("gate", arrays.step_set, arrays.tables)
    assert (arrays.head["fault"][0], arrays.head["start_ns"][0] > 0) == (0, True)


def test_gate_gives_up(emulate: Emulate) -> None:
    """E2: a lost step ends in a fault. The emulator's clock advances by one second a reading."""
    arrays = StepData(CHUNKS)
    arrays.head["id"], arrays.completed[0] = 5, 3
    emulate("gate", arrays.step_set, arrays.tables)
    assert arrays.head["fault"][0] == 1


@pytest.mark.parametrize("part_bytes", [16, 4096, 32768, 20016])
def test_copy_pages(emulate: Emulate, part_bytes: int) -> None:
    """E25, E1. Three device pages, four host pages; [part][page] on the device, [page][part] on the host."""
    arrays, rng, total, parts = StepData([(0, 0, 3)]), np.random.default_rng(1), 3, 6
    cache = rng.integers(0, 256, (parts, total, part_bytes), np.uint8)
    host = rng.integers(0, 256, (4, parts, part_bytes), np.uint8)
    expected, expected_host = cache.copy(), host.copy()
    arrays.token_sequence[:], arrays.token_position[:] = [total + 3, 1, total], [2, total + 1, 0]
    expected[:, 2], expected[:, 0], expected_host[1] = host[3], host[0], cache[:, 1]
    arrays.head["id"], arrays.completed[0] = 5, 4
    emulate("copy_pages", arrays.step_set, arrays.tables, cache, host, total, parts, part_bytes)
    np.testing.assert_array_equal(cache, expected)
    np.testing.assert_array_equal(host, expected_host)
    assert (arrays.completed[0], arrays.head["slots_done"][0]) == (5, 0)


@pytest.mark.parametrize("scale", [1.0, 50.5])
def test_embed(emulate: Emulate, scale: float) -> None:
    arrays, table = StepData(CHUNKS, padding=3), random(64, 40)
    got, expected = (np.full((34, 40), 7, np.float32) for _ in range(2))
    emulate("embed", arrays.step_set, arrays.tables, table, got, 40, scale, 34)
    arrays.call("embed", floats(table), expected, 40, scale, 34)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("hidden", [8, 96, 1600])
def test_norms(emulate: Emulate, hidden: int) -> None:
    start = floats(random(5, hidden))
    delta, weight = random(5, hidden, seed=1), random(hidden, seed=2)
    residual, expected = start.copy(), np.empty_like(start)
    call("residual_rmsnorm", residual, floats(delta), floats(weight), EPS, expected, hidden, 5)
    out = np.zeros((5, hidden), np.uint16)
    emulate("rmsnorm", residual, weight, EPS, out, hidden, 5)
    assert_close(floats(out), expected)
    arrays, gathered = StepData([(1, 0, 2), (2, 0, 3)]), np.full((4, hidden), NAN, np.uint16)
    emulate("gather_rmsnorm", arrays.step_set, residual, weight, EPS, gathered, hidden, 4)
    assert_close(floats(gathered[:2]), expected[[1, 4]])
    np.testing.assert_array_equal(gathered[2:], 0)  # batch slots that are not in use


@pytest.mark.parametrize(("hidden", "width"), [(8, 16), (1600, 96), (96, 1600)])
def test_gather_of_the_last_tokens(emulate: Emulate, hidden: int, width: int) -> None:
    arrays = StepData([(1, 0, 2), (2, 0, 3)])
    residual, attention = floats(random(5, hidden)), random(5, width, seed=1)
    last = np.full((4, hidden), np.nan, np.float32), np.full((4, width), NAN, np.uint16)
    emulate("gather_last", arrays.step_set, residual, attention, *last, hidden, width, 4)
    for got, rows in zip(last, (residual, attention), strict=True):
        np.testing.assert_array_equal(got[:2], rows[[1, 4]])
        np.testing.assert_array_equal(got[2:], 0)  # batch slots that are not in use


@pytest.mark.parametrize("hidden", [8, 96, 1600])
@pytest.mark.parametrize("normed", [False, True])
def test_add_rmsnorm(emulate: Emulate, hidden: int, normed: bool) -> None:
    residual, x = floats(random(5, hidden)), random(5, hidden, seed=1, scale=3)
    weight, following = random(hidden, seed=2), random(hidden, seed=3)
    total, expected = residual.copy(), np.empty_like(residual)
    call("add_rmsnorm", total, floats(x), floats(weight), floats(following), EPS, expected, hidden, 5)
    out = np.full((5, hidden), NAN, np.uint16)
    emulate("add_rmsnorm", residual, x, weight, following if normed else None, EPS, out, hidden, 5)
    np.testing.assert_allclose(residual, total, rtol=1e-5, atol=1e-5)
    if normed:
        assert_close(floats(out), expected)
    else:
        assert (out == NAN).all()


@pytest.mark.parametrize("activation", [SILU, GELU_TANH])
@pytest.mark.parametrize("intermediate", [8, 256, 1000])
def test_gated(emulate: Emulate, emulate_gelu: Emulate, intermediate: int, activation: int) -> None:
    gate_up, out = random(6, 2, intermediate, scale=5), np.zeros((6, intermediate), np.uint16)
    expected = np.empty((6, intermediate), np.float32)
    (emulate, emulate_gelu)[activation]("silu_mul", gate_up, out, intermediate, 6)
    call("gated", floats(gate_up), expected, intermediate, 6, activation)
    assert_close(floats(out), expected)


@pytest.mark.parametrize(("normed", "biased"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"),
    [(6, 2, 16), (4, 4, 48), (8, 1, 64), (3, 1, 80), (2, 2, 96), (6, 2, 128), (2, 1, 192), (5, 2, 256)],
)
def test_rope(emulate: Emulate, heads: int, kv_heads: int, head_dim: int, normed: bool, biased: bool) -> None:
    arrays = StepData(CHUNKS, padding=2)
    qkv = random(33, heads + 2 * kv_heads, head_dim)
    norms = [random(head_dim, seed=s) if normed else None for s in (1, 2)]
    bias = random(heads + 2 * kv_heads, head_dim, seed=3) if biased else None
    rope = rope_table(head_dim, magnitude=1.25, rotated=head_dim - 4)
    caches = [np.full((64, kv_heads, 16, head_dim), NAN, np.uint16) for _ in range(2)]
    expected = [floats(array) for array in (qkv, *caches)]
    sizes = (heads, kv_heads, head_dim, 33)
    float_weights = [None if weight is None else floats(weight) for weight in (bias, *norms)]
    arrays.call("rope", expected[0], *float_weights, EPS, rope, *expected[1:], 0.0, 0.0, *sizes)
    emulate(
        "rope", arrays.step_set, arrays.tables, qkv, bias, *norms, EPS, rope, *caches, 0.0, 0.0, *sizes, 0
    )
    assert_close(floats(qkv)[:, :heads], expected[0][:, :heads])
    for got, cache in zip(caches, expected[1:], strict=True):
        np.testing.assert_array_equal(np.isnan(floats(got)), np.isnan(cache))  # E3: nothing else is written
        written = ~np.isnan(cache)
        assert_close(floats(got)[written], cache[written])


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize(
    ("m", "n_in", "n_out", "groups", "blocks", "form"),
    [(1, 32, 16, 1, 1, None), (1, 4096, 40, 1, 2, None), (3, 96, 41, 1, 3, None), (8, 704, 64, 1, 2, None),
     (5, 2304, 24, 2, 2, None), (16, 1024, 48, 2, 1, None), (9, 544, 19, 2, 1, None),
     (12, 320, 40, 2, 2, None),
     (1, 64, 16, 1, 1, ScaleForm.ROW), (3, 4672, 41, 1, 3, ScaleForm.ROW), (8, 704, 64, 1, 2, ScaleForm.ROW),
     (1, 4096, 136, 1, 2, ScaleForm.BLOCK), (8, 832, 264, 1, 5, ScaleForm.BLOCK)],
)  # fmt: skip
def test_gemv(
    emulate: Emulate,
    m: int,
    n_in: int,
    n_out: int,
    groups: int,
    blocks: int,
    form: ScaleForm | None,
    output: str,
) -> None:
    """Shares of k that are uneven, tiles that are not full, blocks with several tiles, padding rows of x."""
    rows = 2 * n_out if output == "silu" else n_out
    x, w = random(m + 1, n_in), weights(random(rows, n_in, seed=1, scale=0.1), form)
    x[m] = NAN  # not read
    product = Product(x[:m], w.values, n_out, output)
    sizes = (m, n_in, n_out, OUTPUTS.index(output), groups, w.form, blocks)
    emulate("gemv", *w.pointers, x, product.y, *sizes)
    product.check()


NO_ROUTER = (None, None, None, 0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(
    ("m", "n_in", "n_out", "blocks"), [(1, 1024, 40, 3), (2, 2048, 88, 4), (1, 4096, 136, 5), (2, 1024, 8, 1)]
)
def test_resident_gemv(
    emulate: Emulate, m: int, n_in: int, n_out: int, blocks: int, normed: bool, form: ScaleForm | None
) -> None:
    """Blocks with several tiles and with none abreast, rows of x past the end; a norm before, a sum after."""
    w, norm = weights(random(n_out, n_in, seed=1, scale=0.1), form), random(n_in, seed=2)
    residual = np.random.default_rng(3).standard_normal((m + 1, n_in)).astype(np.float32)
    residual[m] = np.nan  # not read
    sizes = (m, n_in, n_out, w.form, blocks)
    if normed:
        y, x = np.full((m + 1, n_out), NAN, np.uint16), residual
        scale = 1 / np.sqrt((residual[:m] ** 2).mean(axis=1, keepdims=True) + np.float32(1e-5))
        expected = residual[:m] * scale * floats(norm) @ w.values.T
        emulate("resident_gemv", *w.pointers, x, norm, 1e-5, y, *sizes, *NO_ROUTER)
        assert_close(floats(y)[:m], expected)
        assert (y[m] == NAN).all()
    else:
        before = np.random.default_rng(4).standard_normal((m + 1, n_out)).astype(np.float32)
        y, half = before.copy(), random(m + 1, n_in)
        half[m] = NAN
        emulate("resident_gemv", *w.pointers, half, None, 1e-5, y, *sizes, *NO_ROUTER)
        assert_close(y[:m], before[:m] + floats(half[:m]) @ w.values.T)
        np.testing.assert_array_equal(y[m], before[m])


@pytest.mark.parametrize(
    ("n_in", "n_out", "blocks", "n_experts", "scale", "form"),
    [
        (512, 40, 3, 5, 1, None),
        (4096, 128, 16, 256, 1, None),
        (512, 40, 5, 9, 1e-3, None),
        (1024, 40, 3, 5, 1, ScaleForm.ROW),
        (1024, 136, 5, 5, 1, ScaleForm.BLOCK),
    ],
)
def test_linear_held_of_one_row_leaves_a_router_its_sums(
    emulate: Emulate,
    n_in: int,
    n_out: int,
    blocks: int,
    n_experts: int,
    scale: float,
    form: ScaleForm | None,
) -> None:
    """To what was there, each block its own: integers, which have no order (E8)."""
    w = weights(random(n_out, n_in, seed=1, scale=0.1 * scale), form)
    x, norm = random(1, n_in), random(n_out, seed=2)
    router = random(n_experts, n_out, seed=3)
    before = (scale * np.random.default_rng(4).standard_normal((1, n_out))).astype(np.float32)
    y, sums = before.copy(), np.full((4, n_experts), 1 << 20, np.int64)
    sizes = (1, n_in, n_out, w.form, blocks)
    emulate("resident_gemv", *w.pointers, x, None, 1e-5, y, *sizes, norm, router, sums, n_experts)
    assert_close(y, before + floats(x) @ w.values.T)
    expected = np.full((4, n_experts), 1 << 20, np.int64)
    for block in range(blocks):
        part = np.zeros(n_experts, np.float32)
        for tile in range(block, n_out // 8, blocks):
            for j in range(8 * tile, 8 * tile + 8):
                part += y[0, j] * floats(norm)[j] * floats(router)[:, j]
        expected[block % 4] += np.rint(part.astype(np.float64) * 2.0**32).astype(np.int64)
    np.testing.assert_array_equal(sums, expected)


class Attention:
    """Random queries and caches for a step; cells of the cache that no row uses hold NaN, `none`."""

    def __init__(
        self,
        chunks: Sequence[tuple[int, int, int]],
        heads: int,
        kv_heads: int,
        head_dim: int,
        scales: tuple[float, float] = HALVES,
        **sizes: Any,
    ) -> None:
        self.arrays = StepData(chunks, **sizes)
        self.shape = (heads, kv_heads, head_dim)
        self.n_tokens = len(self.arrays.token_sequence)
        page_size, n_pages = int(self.arrays.tables["page_size"]), sizes["total_pages"]
        self.qkv = random(self.n_tokens, heads + 2 * kv_heads, head_dim)
        halves = random(2, n_pages, kv_heads, page_size, head_dim, seed=1, scale=2)
        self.scales, self.cache, none = scales, halves, NAN
        if scales != HALVES:
            pairs = zip(floats(halves), scales, strict=True)
            self.cache, none = np.stack([to_fp8(x / np.float32(scale)) for x, scale in pairs]), FP8_NAN
        self.none, self.caches = np.array(none, self.cache.dtype), list(self.cache)
        used = np.zeros((n_pages, page_size), bool)
        for row, _, end in chunks:
            positions = np.arange(end)
            used[self.arrays.block_table[row, positions // page_size], positions % page_size] = True
        for cache in self.caches:
            cache.transpose(0, 2, 1, 3)[~used] = self.none
        if scales != HALVES:
            self._leave_keys_and_values(chunks, page_size)
        self.out = np.full((self.n_tokens, heads, head_dim), 0x40E0, np.uint16)  # 7
        self.arguments = (self.arrays.step_set, self.arrays.tables, self.qkv, *self.caches, *scales)

    def _leave_keys_and_values(self, chunks: Sequence[tuple[int, int, int]], page_size: int) -> None:
        """In qkv, as RoPE does beside a cache in fp8."""
        heads, kv_heads, _ = self.shape
        token = 0
        for row, begin, end in chunks:
            positions = np.arange(begin, end)
            pages, tokens = (
                self.arrays.block_table[row, positions // page_size],
                slice(token, token + end - begin),
            )
            for side, cache in enumerate(self.caches):
                first = heads + side * kv_heads
                cells = cache[pages, :, positions % page_size]
                self.qkv[tokens, first : first + kv_heads] = from_fp8(cells).view(np.uint32) >> 16  # exact
            token += end - begin

    def values(self) -> list[Floats]:
        """What the cache holds of keys and of values."""
        if self.scales == HALVES:
            return [floats(cache) for cache in self.caches]
        pairs = zip(self.caches, self.scales, strict=True)
        return [from_fp8(cache) * np.float32(scale) for cache, scale in pairs]

    def check(self, window: int = 0) -> None:
        heads, kv_heads, head_dim = self.shape
        expected = np.full((self.n_tokens, heads, head_dim), 7, np.float32)
        inputs = [floats(self.qkv), *self.values()]
        self.arrays.call("attention", *inputs, expected, heads, kv_heads, head_dim, window, self.n_tokens)
        assert_close(floats(self.out), expected, 2 * TOLERANCE)


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
    inputs = (step.arrays.tables, step.qkv, step.cache, *step.scales, step.out, plan)
    emulate("flash_attention", *inputs, *step.shape, step.n_tokens, n_cells, pack, blocks, 0)
    step.check()


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
@pytest.mark.parametrize("seed", range(8))
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
