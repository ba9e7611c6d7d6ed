"""The CUDA kernels, run on the CPU by an emulator of CUDA's threads, against their CPU references.

What the emulator cannot show: memory ordering between blocks, and speed. tests/gpu runs the same
kernels on a GPU.
"""

from __future__ import annotations

import numpy as np
import pytest
from emulation import EPS, Emulate
from halves import NAN, assert_close, floats, random
from products import OUTPUTS, Product
from reference_ops import GELU_TANH, NO_GROWTH, SILU, StepData, call, rope_table
from weights import FORMS, FP4_16, FP4_32, INT4, weights

from gpu_backend.models.quantization import Codes, Form, GroupForm, ScaleForm

CHUNKS = [(3, 0, 20), (0, 17, 18), (6, 30, 40)]


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
    adds, added, beside = random(hidden, seed=3), residual.copy(), np.zeros((5, hidden), np.uint16)
    emulate("rmsnorm_adding", added, weight, EPS, beside, hidden, adds, 5)
    np.testing.assert_array_equal(beside, out)
    np.testing.assert_array_equal(added, residual + floats(adds))
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
    arrays.call("rope", expected[0], *float_weights, EPS, rope, *expected[1:], 0.0, 0.0, *sizes, *NO_GROWTH)
    emulate(
        "rope", arrays.step_set, arrays.tables, qkv, bias, *norms, EPS, rope, *caches, 0.0, 0.0, *sizes, 0,
        *NO_GROWTH,
    )  # fmt: skip
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
     (1, 4096, 136, 1, 2, ScaleForm.BLOCK), (8, 832, 264, 1, 5, ScaleForm.BLOCK),
     (8, 256, 168, 1, 1, INT4), (3, 4864, 41, 1, 3, INT4), (8, 768, 40, 1, 2, INT4),
     (2, 14336, 24, 1, 1, INT4),
     (4, 1024, 48, 1, 2, GroupForm(Codes.INT4, 32)), (8, 1536, 24, 1, 2, GroupForm(Codes.INT4, 128)),
     (1, 4096, 41, 1, 2, GroupForm(Codes.INT4, 128)), (3, 512, 136, 1, 3, GroupForm(Codes.INT4, 128)),
     (1, 2560, 136, 1, 1, FP4_32), (8, 512, 41, 1, 3, FP4_32), (2, 4224, 24, 1, 2, FP4_16),
     (5, 512, 48, 1, 1, FP4_16)],
)  # fmt: skip
def test_gemv(
    emulate: Emulate,
    m: int,
    n_in: int,
    n_out: int,
    groups: int,
    blocks: int,
    form: Form | None,
    output: str,
) -> None:
    """Shares of k that are uneven, tiles that are not full, blocks with several tiles, padding rows of x. Of
    codes, rows of one stage, of two and of more, the last with less for a warp, and more tiles than warps."""
    rows = 2 * n_out if output == "silu" else n_out
    x, w = random(m + 1, n_in), weights(random(rows, n_in, seed=1, scale=0.1), form)
    x[m] = NAN  # not read
    integers = isinstance(form, GroupForm) and form.codes is Codes.INT4  # weights are not rounded
    product = Product(x[:m], w.exact if integers else w.values, n_out, output)
    sizes = (m, n_in, n_out, OUTPUTS.index(output), groups, w.form, blocks)
    emulate("gemv", *w.pointers, x, product.y, *sizes)
    product.check()


NO_ROUTER = (None, None, None, 0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(
    ("m", "n_in", "n_out", "blocks"),
    [(1, 1024, 40, 3), (2, 2048, 88, 4), (1, 4096, 136, 5), (2, 4096, 24, 2), (2, 1024, 8, 1)],
)
def test_resident_gemv(
    emulate: Emulate, m: int, n_in: int, n_out: int, blocks: int, normed: bool, form: Form | None
) -> None:
    """Blocks with several tiles and with none abreast, rows of x past the end; a norm before, a sum after.
    Codes have chunks of which a row has at least 16."""
    if isinstance(form, GroupForm):
        n_in = max(n_in, 2048)
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
    form: Form | None,
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
