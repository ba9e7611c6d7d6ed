"""Kernels that end in an activation, compiled for a model whose activation is GELU."""

from __future__ import annotations

import numpy as np
import pytest
from emulation import Emulate
from halves import assert_close, floats, random
from moe_case import STREAMED, TILED, MoeCase
from products import OUTPUTS
from reference_ops import CLAMPED_SWIGLU, GELU_TANH, call
from routings import uniform
from test_skinny_gemm_device import check_product
from test_tiled_gemm_device import multiply
from weights import weights


def test_stream(emulate_gelu: Emulate) -> None:
    m, n_in, n_out = 3, 96, 40
    x, w = random(m, n_in), random(2 * n_out, n_in, seed=1, scale=0.1)
    product, expected = np.empty((m, 2 * n_out), np.float32), np.empty((m, n_out), np.float32)
    call("linear", floats(x), floats(w), product, m, n_in, 2 * n_out)
    call("gated", product, expected, n_out, m, GELU_TANH)
    y = np.zeros((m, n_out), np.uint16)
    emulate_gelu(
        "gemv", *weights(w).pointers, x, y, m, n_in, n_out, OUTPUTS.index("silu"), 1, weights(w).form, 2
    )
    assert_close(floats(y), expected)


def test_tiles_of_clamped_products(emulate_clamped: Emulate) -> None:
    got, expected = multiply(
        emulate_clamped, random(100, 200, scale=4), 72, "silu", 128, 1, 1, CLAMPED_SWIGLU
    )
    assert_close(got[:100], expected[:100])


@pytest.mark.parametrize(("run", "tokens"), [(STREAMED, 5), (STREAMED, 40), (TILED, 70)])
def test_clamped_experts_with_a_bias(emulate_clamped: Emulate, run: object, tokens: int) -> None:
    """Gates above 7, and ups beyond 7 on both sides."""
    case = MoeCase(uniform(tokens, 5, 2), 5, 72, 40)
    case.activation, case.bias = CLAMPED_SWIGLU, random(5, 2, 40, seed=6, scale=8)
    case.check(run(case, emulate_clamped))  # type: ignore[operator]


def test_wide(emulate_gelu: Emulate) -> None:
    check_product(emulate_gelu, 20, 320, 72, 48, 1, 3, 1, 2, "silu", GELU_TANH)


def test_tiled(emulate_gelu: Emulate) -> None:
    got, expected = multiply(emulate_gelu, random(100, 200), 72, "silu", 128, 1, 1, GELU_TANH)
    assert_close(got[:100], expected[:100])


@pytest.mark.parametrize(("run", "tokens"), [(STREAMED, 5), (STREAMED, 40), (TILED, 70)])
def test_experts(emulate_gelu: Emulate, run: object, tokens: int) -> None:
    case = MoeCase(uniform(tokens, 5, 2), 5, 72, 40)
    case.activation = GELU_TANH
    case.check(run(case, emulate_gelu))  # type: ignore[operator]
