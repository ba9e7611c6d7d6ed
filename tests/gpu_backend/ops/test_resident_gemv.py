"""Which matmuls hold x in shared memory, and how they are launched."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matmuls import BF16, matmul

from gpu_backend.element import Element
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.ops.choice import choose, serves
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.matrix import Matrix
from gpu_backend.ops.operations import Epilogue, MatMul, Norm, Role
from gpu_backend.ops.resident_gemv import RESIDENT_PAD

BESIDE_EXPERTS = Target(132, has_experts=True, gemv_rows=8)


def qkv(m: int, k: int, n: int) -> MatMul:
    """Of the residual, whose norm is part of it."""
    return replace(matmul(Role.QKV, m, k, n, Epilogue.STORE), norm=Norm(Matrix(1, k, BF16), 1e-6))


@pytest.mark.parametrize(
    ("k", "n", "chunks", "blocks"), [(2048, 5120, 4, 262), (4096, 2048, 8, 256), (512, 24, 1, 3)]
)
def test_a_matmul_has_an_instance_and_at_most_a_tile_a_block(
    k: int, n: int, chunks: int, blocks: int
) -> None:
    (launch,) = choose(qkv(2, k, n), BESIDE_EXPERTS).launches
    assert launch.kernel == f"resident_gemv_kernel<__nv_bfloat16, blink::kEpilogueHalf, {chunks}, true>"
    assert (launch.grid, launch.shared_bytes) == ((blocks, 1, 1), 2 * 2 * (k + RESIDENT_PAD))


@pytest.mark.parametrize("form", ScaleForm)
@pytest.mark.parametrize(("k", "chunks"), [(1024, 1), (2048, 2), (4096, 4), (8192, 8)])
def test_weights_in_fp8_have_twice_as_much_k_a_chunk(k: int, chunks: int, form: ScaleForm) -> None:
    """x is of halves, as before."""
    op = qkv(2, k, 5120)
    weight = Matrix(5120, k, Element.FP8, scales=Matrix(*form.shape(5120, k), Element.FP32))
    (launch,) = choose(replace(op, weight=weight), BESIDE_EXPERTS).launches
    name = {ScaleForm.ROW: "kScaleByRow", ScaleForm.BLOCK: "kScaleByBlock"}[form]
    arguments = f"__nv_bfloat16, blink::kEpilogueHalf, {chunks}, true, blink::{name}"
    assert launch.kernel == f"resident_gemv_kernel<{arguments}>"
    assert launch.shared_bytes == 2 * 2 * (k + RESIDENT_PAD)


@pytest.mark.parametrize(("k", "n"), [(1536, 2048), (8192, 1024), (2080, 2048), (2048, 20)])
def test_other_sizes_do_not_suit(k: int, n: int) -> None:
    assert not serves("resident_gemv", qkv(1, k, n), BESIDE_EXPERTS)
    assert choose(matmul(Role.O, 1, k, n, Epilogue.ADD), BESIDE_EXPERTS).name == "gemv"


def test_only_attention_s_matmuls_of_two_rows_beside_experts_suit() -> None:
    o = matmul(Role.O, 2, 4096, 2048, Epilogue.ADD)
    assert serves("resident_gemv", o, BESIDE_EXPERTS)
    assert not serves("resident_gemv", o, Target(132, gemv_rows=4))
    assert not serves("resident_gemv", matmul(Role.O, 3, 4096, 2048, Epilogue.ADD), BESIDE_EXPERTS)
    assert not serves("resident_gemv", replace(o, role=Role.DOWN), BESIDE_EXPERTS)
