"""The ops' CPU references against numpy references in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from reference_ops import GELU_TANH, NO_GROWTH, SILU, Floats, StepData, call, rope_table

from gpu_backend.abi import NO_SEQUENCE

EPS = 1e-5
CHUNKS = [(3, 0, 20), (0, 17, 18), (6, 30, 40)]


def random(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def rmsnorm(x: NDArray[np.float64], weight: Floats) -> NDArray[np.float64]:
    return np.asarray(x / np.sqrt((x**2).mean(-1, keepdims=True) + EPS) * weight)


@pytest.mark.parametrize("scale", [1.0, 50.5])
def test_embed_reads_history_and_zeroes_padding(scale: float) -> None:
    arrays = StepData(CHUNKS, padding=3)
    table, residual = random(64, 24), np.full((34, 24), 7, np.float32)
    arrays.call("embed", table, residual, 24, scale, 34)
    ids = [arrays.history[row, position] for row, first, end in CHUNKS for position in range(first, end)]
    np.testing.assert_array_equal(residual[:31], np.float32(scale) * table[ids])
    np.testing.assert_array_equal(residual[31:], 0)


def test_residual_rmsnorm() -> None:
    residual, delta, weight = random(5, 40), random(5, 40, seed=1), random(40, seed=2)
    total = residual.astype(np.float64) + delta
    out = np.empty_like(residual)
    call("residual_rmsnorm", residual, delta, weight, EPS, out, 40, 5)
    np.testing.assert_allclose(residual, total, rtol=1e-6)
    np.testing.assert_allclose(out, rmsnorm(total, weight), rtol=1e-5, atol=1e-6)


def test_gather_takes_the_last_token_of_each_lane() -> None:
    arrays = StepData(CHUNKS)
    residual, delta, weight = random(31, 40), random(31, 40, seed=1), random(40, seed=2)
    expected = rmsnorm(residual.astype(np.float64) + delta, weight)[[19, 20, 30]]
    out = np.empty((3, 40), np.float32)
    call("gather_rmsnorm", arrays.step_set, residual, delta, weight, EPS, out, 40)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("activation", [SILU, GELU_TANH])
def test_gated(activation: int) -> None:
    gate_up, out = 10 * random(7, 2, 24), np.empty((7, 24), np.float32)
    gate_up[0, 0, :4] = (-1e4, 1e4, -100, 0)
    gate, up = gate_up.astype(np.float64).transpose(1, 0, 2)
    call("gated", gate_up, out, 24, 7, activation)
    inner = np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)
    sigmoid = 1 / (1 + np.exp(-np.clip(gate, -700, 700)))
    expected = gate * sigmoid if activation == SILU else gate / 2 * (1 + np.tanh(inner))
    np.testing.assert_allclose(out, expected * up, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("normed", [False, True])
def test_add_rmsnorm(normed: bool) -> None:
    residual, x, weight = random(5, 40), 3 * random(5, 40, seed=1), random(40, seed=2)
    following, out = random(40, seed=3), np.full((5, 40), 7, np.float32)
    total = residual + rmsnorm(x.astype(np.float64), weight)
    call("add_rmsnorm", residual, x, weight, following if normed else None, EPS, out, 40, 5)
    np.testing.assert_allclose(residual, total, rtol=1e-5, atol=1e-6)
    expected = rmsnorm(total, following) if normed else np.full((5, 40), 7)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 64, 33), (3, 100, 7), (9, 17, 4), (70, 1030, 6)])
def test_linear(rows: int, inputs: int, outputs: int) -> None:
    x, w, y = random(rows, inputs), random(outputs, inputs, seed=1), np.empty((rows, outputs), np.float32)
    call("linear", x, w, y, rows, inputs, outputs)
    np.testing.assert_allclose(y, x.astype(np.float64) @ w.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("normed", "biased"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("head_dim", "growth"), [(16, NO_GROWTH), (48, (0.3, 7)), (128, NO_GROWTH), (256, (0.1, 1))]
)
def test_rope_rotates_and_writes_the_pages(
    head_dim: int, growth: tuple[float, int], normed: bool, biased: bool
) -> None:
    heads, kv_heads, tokens = 6, 2, 33
    arrays = StepData(CHUNKS, padding=2)
    qkv = random(tokens, heads + 2 * kv_heads, head_dim)
    norms = [random(head_dim, seed=s) if normed else None for s in (1, 2)]
    bias = random(heads + 2 * kv_heads, head_dim, seed=3) if biased else None
    rope = rope_table(head_dim, magnitude=1.25, rotated=head_dim - 4)
    caches = [np.full((64, kv_heads, 16, head_dim), np.nan, np.float32) for _ in range(2)]
    given, before = qkv.copy(), qkv.astype(np.float64)
    if bias is not None:
        before[:31] += bias
    sizes = (heads, kv_heads, head_dim, tokens)
    arrays.call("rope", qkv, bias, *norms, EPS, rope, *caches, 0.0, 0.0, *sizes, *growth)

    frequency, magnitude = rope.astype(np.float64).T
    angle = arrays.token_position[:, None] * frequency
    cos, sin = (np.concatenate([magnitude * f(angle)] * 2, -1)[:, None] for f in (np.cos, np.sin))
    parts = [before[:, :heads], before[:, heads : heads + kv_heads]]
    if normed:
        parts = [rmsnorm(part, norm) for part, norm in zip(parts, norms, strict=True) if norm is not None]
    half = head_dim // 2
    q, k = (x * cos + np.concatenate([-x[..., half:], x[..., :half]], -1) * sin for x in parts)
    q *= 1 + growth[0] * np.log(1 + arrays.token_position // growth[1])[:, None, None]
    v = before[:, heads + kv_heads :]
    np.testing.assert_allclose(qkv[:31, :heads], q[:31], atol=2e-5)
    np.testing.assert_array_equal(qkv[31:], given[31:])  # E3: padding is left alone
    written = np.zeros((*caches[0].shape[:1], 16), bool)
    for i, (row, position) in enumerate(
        zip(arrays.token_sequence[:31], arrays.token_position[:31], strict=True)
    ):
        page, slot = arrays.block_table[row, position // 16], position % 16
        np.testing.assert_allclose(caches[0][page, :, slot], k[i], atol=2e-5)
        np.testing.assert_array_equal(caches[1][page, :, slot], v[i].astype(np.float32))
        written[page, slot] = True
    for cache in caches:
        assert np.isnan(cache.transpose(0, 2, 1, 3)[~written]).all()


@pytest.mark.parametrize("window", [0, 1, 5, 16, 21, 100])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(4, 4, 16), (6, 2, 48), (8, 1, 128)])
def test_attention_over_pages(heads: int, kv_heads: int, head_dim: int, window: int) -> None:
    arrays = StepData(CHUNKS, padding=2)
    qkv = random(33, heads + 2 * kv_heads, head_dim)
    k_cache, v_cache = (3 * random(64, kv_heads, 16, head_dim, seed=s) for s in (1, 2))
    out = np.full((33, heads, head_dim), 7, np.float32)
    sinks = 3 * random(heads, seed=3) if window % 2 else None
    arrays.call("attention", qkv, k_cache, v_cache, out, heads, kv_heads, head_dim, window, sinks, 33)
    for i, (row, position) in enumerate(zip(arrays.token_sequence, arrays.token_position, strict=True)):
        if row == NO_SEQUENCE:
            np.testing.assert_array_equal(out[i], 7)
            continue
        pages, first = arrays.block_table[row], max(0, int(position) + 1 - window) if window else 0
        k, v = (
            cache[pages].transpose(0, 2, 1, 3).reshape(-1, kv_heads, head_dim)[first : position + 1]
            .astype(np.float64).repeat(heads // kv_heads, 1)
            for cache in (k_cache, v_cache)
        )  # fmt: skip
        scores = np.einsum("hd,jhd->hj", qkv[i, :heads], k) / np.sqrt(head_dim)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        total = weights.sum(-1) + (0 if sinks is None else np.exp(sinks - scores.max(-1)))
        expected = np.einsum("hj,jhd->hd", weights / total[:, None], v)
        np.testing.assert_allclose(out[i], expected, rtol=1e-4, atol=1e-5)
