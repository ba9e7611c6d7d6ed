"""Which experts with biases one token's kernels serve, and what they are launched with. Others are in
test_moe_fp8.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_backend.element import Element
from gpu_backend.kernel_abi.expert_ring import EXPERT_RING_BYTES
from gpu_backend.kernel_abi.single_token_codes import FEW_DOWN_BYTES
from gpu_backend.models.quantization import Codes, GroupForm, ScaleForm
from gpu_backend.ops.choice import choose
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.moe_one import OneTokenMoe
from gpu_backend.ops.operations import Moe, Norm, Routing
from gpu_backend.ops.weights import scales_of

BF16, FP32 = Element.BF16, Element.FP32
TARGET = Target(132, has_experts=True, gemv_rows=8)
MXFP4 = GroupForm(Codes.E2M1, 32)


def matrix(rows: int, columns: int, form: GroupForm | None) -> Matrix:
    if form is None:
        return Matrix(rows, columns, BF16)
    return Matrix(rows, columns, Element.CODES, scales=scales_of(form, rows, columns, 0), groups=form)


def experts(
    form: GroupForm | None, hidden: int = 2880, inner: int = 2880, count: int = 128, per_token: int = 4
) -> Moe:
    """gpt-oss-120b's, if nothing else is said."""
    return Moe(
        Routing(count, per_token, True),
        inner,
        Norm(Matrix(1, hidden, BF16), 1e-5),
        Matrix(count, hidden, BF16),
        matrix(2 * count * inner, hidden, form),
        matrix(count * hidden, inner, form),
        Buffer("residual", 1, hidden, FP32),
        Buffer("normed", 1, hidden, BF16),
        router_bias=Matrix(1, count, BF16),
        gate_up_bias=Matrix(1, 2 * count * inner, BF16),
        down_bias=Matrix(1, count * hidden, BF16),
        routed=True,
    )


def launches(op: Moe) -> list[Launch]:
    choice = choose(op, TARGET)
    assert choice.name == "moe_one"
    return [work for work in choice.launches if isinstance(work, Launch)]


def test_codes_with_biases_go_through_shared_memory_of_which_two_blocks_share_all() -> None:
    op = experts(MXFP4)
    gate_up, down = launches(op)
    assert gate_up.kernel == "moe_single_codes_gate_up_kernel<__nv_bfloat16, blink::kFp4By32>"
    assert down.kernel == "moe_single_codes_down_kernel<__nv_bfloat16, blink::kFp4By32>"
    assert (gate_up.shared_bytes, down.shared_bytes) == (EXPERT_RING_BYTES + 2 * 2880, FEW_DOWN_BYTES)
    assert gate_up.operands[-2:] == (op.router_bias, op.gate_up_bias)
    assert down.operands[-1] == op.down_bias


def test_halves_with_biases_have_an_instance_of_the_kernels_without() -> None:
    op = experts(None)
    gate_up, down = launches(op)
    assert gate_up.kernel == "moe_single_token_gate_up_kernel<__nv_bfloat16, blink::kUnscaled, true>"
    assert down.kernel == "moe_single_token_down_kernel<__nv_bfloat16, blink::kUnscaled, true>"
    plain = replace(op, router_bias=None, gate_up_bias=None, down_bias=None)
    assert launches(plain)[0].kernel == "moe_single_token_gate_up_kernel<__nv_bfloat16>"
    assert launches(plain)[1].kernel == "moe_single_token_down_kernel<__nv_bfloat16>"


def test_codes_without_biases_are_loaded_to_registers() -> None:
    plain = replace(
        experts(MXFP4, 2048, 768, per_token=8), router_bias=None, gate_up_bias=None, down_bias=None
    )
    gate_up, down = launches(plain)
    assert gate_up.kernel == "moe_single_token_gate_up_kernel<__nv_bfloat16, blink::kFp4By32>"
    assert down.kernel == "moe_single_token_down_kernel<__nv_bfloat16, blink::kFp4By32>"


@pytest.mark.parametrize(
    ("sizes", "served"),
    [
        ({}, True),
        ({"hidden": 4096, "inner": 3072}, True),  # as many as a thread's and a warp's registers hold
        ({"hidden": 4128}, False),
        ({"inner": 3104}, False),
        ({"per_token": 5}, False),  # no two warps for each
        ({"per_token": 1, "hidden": 32, "inner": 32}, True),
    ],
)
def test_codes_with_biases_have_kernels_for_some_sizes(sizes: dict[str, int], served: bool) -> None:
    reason = OneTokenMoe().suits(experts(MXFP4, **sizes), TARGET)
    assert reason == (None if served else "there is no instance for these sizes")


FP8_DOWN = Matrix(128 * 2880, 2880, Element.FP8, scales=Matrix(*ScaleForm.ROW.shape(128 * 2880, 2880), FP32))


@pytest.mark.parametrize(
    ("form", "change", "reason"),
    [
        (MXFP4, {"router_bias": None}, "it adds biases of the router, gate_up and down, or none"),
        (None, {"down_bias": None}, "it adds biases of the router, gate_up and down, or none"),
        (None, {"down": FP8_DOWN}, "it adds no bias to products of weights in fp8"),
        (
            MXFP4,
            {"down": matrix(128 * 2880, 2880, None)},
            "it adds biases if both matrices are of codes, or neither",
        ),
    ],
)
def test_other_biases_are_refused(form: GroupForm | None, change: dict[str, Any], reason: str) -> None:
    assert OneTokenMoe().suits(replace(experts(form), **change), TARGET) == reason
