"""Which kernels serve many tokens' experts in four bits, and what they are launched with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_backend.element import Element
from gpu_backend.kernel_abi.grouped_codes_gemm_sm90 import GROUPED_CODES_SHARED_BYTES
from gpu_backend.models.quantization import Codes, GroupForm
from gpu_backend.ops.choice import choose
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch, Struct, Tensor
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.operations import Moe, Norm, Routing
from gpu_backend.ops.weights import scales_of

BF16 = Element.BF16
TARGET = Target(132, has_experts=True, gemv_rows=8)
NAMES = {
    GroupForm(Codes.INT4, 128): "kInt4ByGroup",
    GroupForm(Codes.E2M1, 32): "kFp4By32",
    GroupForm(Codes.E2M1, 16): "kFp4By16",
}
COUNT, HIDDEN, INNER = 128, 2944, 768


def codes(rows: int, columns: int, form: GroupForm) -> Matrix:
    return Matrix(rows, columns, Element.CODES, scales=scales_of(form, rows, columns, 0), groups=form)


def experts(form: GroupForm, biased: bool = False, half: Element = BF16) -> Moe:
    return Moe(
        Routing(COUNT, 4, True),
        INNER,
        Norm(Matrix(1, HIDDEN, half), 1e-6),
        Matrix(COUNT, HIDDEN, half),
        codes(2 * COUNT * INNER, HIDDEN, form),
        codes(COUNT * HIDDEN, INNER, form),
        Buffer("residual", 1024, HIDDEN, Element.FP32),
        Buffer("normed", 1024, HIDDEN, half),
        gate_up_bias=Matrix(COUNT, 2 * INNER, half) if biased else None,
    )


def launches(op: Moe) -> dict[str, Launch]:
    """Those that know of experts, by the name of their kernel."""
    works = choose(op, TARGET).launches
    return {
        work.kernel: work for work in works if isinstance(work, Launch) and "expert" in str(work.operands)
    }


@pytest.mark.parametrize("half", [BF16, Element.FP16])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("form", NAMES)
def test_codes_are_multiplied_as_they_lie_in_memory(form: GroupForm, biased: bool, half: Element) -> None:
    """Nothing unpacks them first."""
    op, name = experts(form, biased, half), f"blink::{NAMES[form]}"
    found = launches(op)
    gate_up = found[
        f"moe_grouped_codes_gemm_kernel<{half.cpp}, blink::kGateUp, {name}{', true' if biased else ''}>"
    ]
    down = found[f"moe_grouped_codes_gemm_kernel<{half.cpp}, blink::kDown, {name}>"]
    for launch, weight, shape, box in (
        (gate_up, op.gate_up, (2 * COUNT, INNER, HIDDEN // 4), (2, 128, 32)),
        (down, op.down, (COUNT, HIDDEN, INNER // 4), (1, 256, 32)),
    ):
        shift = 7 if form.group == 128 else 5
        assert Tensor(weight, shape, box) in launch.operands
        assert Struct("<2QI4x", (weight, weight.scales, shift)) in launch.operands
        assert launch.shared_bytes == GROUPED_CODES_SHARED_BYTES
    assert found["expert_plan_kernel<>"].operands[-1] == 128
    assert not any("unpack" in buffer.name for buffer in choose(op, TARGET).buffers)


def test_each_matrix_has_a_kernel_of_its_own() -> None:
    """And one plan, whose units both have registers for."""
    (form, *_) = NAMES
    op = replace(experts(form), down=Matrix(COUNT * HIDDEN, INNER, BF16))
    found = launches(op)
    assert "moe_grouped_gemm_kernel<__nv_bfloat16, blink::kDown>" in found
    assert "moe_grouped_codes_gemm_kernel<__nv_bfloat16, blink::kGateUp, blink::kInt4ByGroup>" in found
    assert found["expert_plan_kernel<>"].operands[-1] == 128
