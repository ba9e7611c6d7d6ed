"""Matmuls of many rows in fp8: a kernel for every captured size, and what is quantised for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_backend.element import Element
from gpu_backend.engines.graph_grid import prefill_sizes
from gpu_backend.engines.native.fusion import fused
from gpu_backend.kernel_abi import fp8 as kernel
from gpu_backend.kernel_abi.tiled_fp8_gemm_sm90 import TILED_FP8_TWO_PARTS
from gpu_backend.models import quantization
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.ops.choice import choose
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.operations import Epilogue, MatMul, Norm, Quantize, RmsNorm, Role
from gpu_backend.ops.quantize import quantize_for
from gpu_backend.ops.tiled_fp8 import TiledFp8Gemm
from gpu_backend.ops.tiled_fp8_cut import tiled_fp8_cut

TARGET = Target(132)
BF16, FP8, FP32 = Element.BF16, Element.FP8, Element.FP32


def in_fp8(m: int, k: int, n: int, epilogue: Epilogue, form: ScaleForm) -> tuple[Quantize, MatMul]:
    rows = 2 * n if epilogue is Epilogue.GATED else n
    weight = Matrix(rows, k, FP8, scales=Matrix(*form.shape(rows, k), FP32))
    out = Buffer("out", m, n, FP32 if epilogue is Epilogue.ADD else BF16)
    x = quantize_for(weight, Buffer("x", m, k, BF16))
    return x, MatMul(Role.DOWN, weight, x.out, out, epilogue, x.scales)


@pytest.mark.parametrize("form", ScaleForm)
@pytest.mark.parametrize("multiprocessors", [pytest.param(78, marks=pytest.mark.slow), 132])
def test_every_number_of_rows_has_a_kernel(form: ScaleForm, multiprocessors: int) -> None:
    target = Target(multiprocessors)
    products = [(4096, 14336, Epilogue.GATED), (14336, 4096, Epilogue.ADD), (4096, 6144, Epilogue.STORE)]
    for m in [*range(65, 2049), *prefill_sizes(8192)]:
        for k, n, epilogue in [*products, (16, 8, Epilogue.ADD), (144, 128, Epilogue.GATED)]:
            _, matmul = in_fp8(m, k, n, epilogue, form)
            assert TiledFp8Gemm().suits(matmul, target) is None
            cut = tiled_fp8_cut(m, k, n, epilogue, form, multiprocessors)
            params = cut.params
            assert (params.m, 2 * params.n_in) == (m, k)
            assert params.columns in range(64, 177, 16)
            assert (params.x_tiles - 1) * params.columns < m <= params.x_tiles * params.columns
            assert (cut.splits - 1) * cut.share < params.n_in <= cut.splits * cut.share
            assert cut.pairs(multiprocessors) <= (multiprocessors - 1) // 2


@pytest.mark.parametrize("form", ScaleForm)
def test_the_choice_is_this_kernel_for_x_in_fp8(form: ScaleForm) -> None:
    for epilogue in (Epilogue.STORE, Epilogue.ADD, Epilogue.GATED):
        quantize, matmul = in_fp8(100, 272, 256, epilogue, form)
        assert choose(matmul, TARGET).name == "tiled_fp8_gemm"
        assert choose(quantize, TARGET).name == "quantize"


def test_few_tiles_split_k() -> None:
    """Llama-3-8B's down of 96 rows has 16 tiles, and a GPU room for 65; of 2048 rows it has enough."""
    few = tiled_fp8_cut(96, 14336, 4096, Epilogue.ADD, ScaleForm.ROW, 132)
    assert few.params.tiles == 16
    assert 30 < few.params.tiles * few.splits <= 65
    assert tiled_fp8_cut(2048, 14336, 4096, Epilogue.ADD, ScaleForm.ROW, 132).splits == 1
    assert tiled_fp8_cut(128, 4096, 14336, Epilogue.GATED, ScaleForm.ROW, 132).splits == 1


def test_many_rows_with_scales_by_block_have_wide_tiles() -> None:
    """Those of an 8B model: fewer tiles lose less than the waiting for each stage's sums."""
    for k, n, epilogue in [(4096, 14336, Epilogue.GATED), (14336, 4096, Epilogue.ADD)]:
        cut = tiled_fp8_cut(8192, k, n, epilogue, ScaleForm.BLOCK, 132)
        assert cut.params.columns > TILED_FP8_TWO_PARTS


def test_a_second_kernel_adds_up_splits() -> None:
    _, matmul = in_fp8(128, 14336, 4096, Epilogue.ADD, ScaleForm.ROW)
    product, total = choose(matmul, TARGET).launches
    assert "kEpilogueFloat" in product.kernel
    assert total.kernel == "split_sums_kernel<__nv_bfloat16, blink::kEpilogueAdd>"
    splits = tiled_fp8_cut(128, 14336, 4096, Epilogue.ADD, ScaleForm.ROW, 132).splits
    assert {b.name: b.n_bytes for b in total.buffers}["split_parts"] == splits * 128 * 4096 * 4


def test_it_refuses_what_it_cannot_read() -> None:
    _, matmul = in_fp8(100, 272, 72, Epilogue.GATED, ScaleForm.BLOCK)
    refuses = TiledFp8Gemm().suits
    assert "block of 128 rows" in (refuses(matmul, TARGET) or "")
    assert "not both in fp8" in (refuses(replace(matmul, x_scales=None), TARGET) or "")
    assert "logits" in (refuses(replace(matmul, epilogue=Epilogue.STORE_FP32), TARGET) or "")
    _, odd = in_fp8(100, 272, 76, Epilogue.ADD, ScaleForm.ROW)
    assert "no multiples" in (refuses(odd, TARGET) or "")


@pytest.mark.parametrize(("form", "scales"), [(ScaleForm.ROW, (1, 104)), (ScaleForm.BLOCK, (3, 104))])
def test_scales_of_rows_lie_side_by_side(form: ScaleForm, scales: tuple[int, int]) -> None:
    quantize, _ = in_fp8(101, 272, 256, Epilogue.ADD, form)
    assert (quantize.scales.rows, quantize.scales.columns) == scales


def test_a_norm_leaves_fp8_alone() -> None:
    quantize, matmul = in_fp8(100, 272, 256, Epilogue.STORE, ScaleForm.ROW)
    norm = RmsNorm(Buffer("residual", 100, 272, FP32), Norm(Matrix(1, 272, BF16), 1e-5), quantize.x)
    both, after = fused([norm, quantize, matmul], TARGET)
    assert (both, after) == (replace(norm, quantize=quantize), matmul)
    buffers = {buffer.name for buffer in choose(both, TARGET).buffers}
    assert buffers == {"residual", quantize.out.name, quantize.scales.name}


def test_a_block_of_scales_is_the_same_everywhere() -> None:
    assert kernel.SCALE_BLOCK == quantization.SCALE_BLOCK
