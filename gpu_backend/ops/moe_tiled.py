"""Experts of many tokens each, in tiles of 256 rows of weights (kernels/ops/moe/grouped_gemm_sm90.h).

Weights in fp8 are multiplied by x in fp8 (kernels/ops/moe/grouped_fp8_gemm_sm90.h). x is the norm, and then
the product of gate and up: each is made in the half type and then quantised. A plan groups the pairs of
tokens and experts into units of one expert (kernels/ops/moe/expert_plan.h).
"""

from __future__ import annotations

from gpu_backend.arithmetic import ceil_div
from gpu_backend.element import Element
from gpu_backend.kernel_abi.expert_plan import PLAN_THREADS, PLAN_TOKENS, ExpertUnit
from gpu_backend.kernel_abi.fp8 import FP8_GROUP, SCALE_BLOCK
from gpu_backend.kernel_abi.grouped_fp8_gemm_sm90 import (
    GROUPED_FP8_K,
    GROUPED_FP8_SHARED_BYTES,
    GROUPED_FP8_UNIT,
)
from gpu_backend.kernel_abi.grouped_gemm_sm90 import (
    GROUPED_K,
    GROUPED_SHARED_BYTES,
    GROUPED_THREADS,
    GROUPED_UNIT,
    GROUPED_WEIGHTS,
)
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch, Struct, Tensor, Work
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.moe_parts import Choose, MoeBuffers, expert_sum, route
from gpu_backend.ops.operations import Moe
from gpu_backend.ops.quantize import quantize_for
from gpu_backend.ops.weights import instance

UNIT_BYTES = ExpertUnit.itemsize
GROUPED_FP8_INPUT = "<2QI4x"  # GroupedFp8Input
WORD = 2  # elements of fp8 in a word of 16 bits, of which the kernel copies rows
GRAIN = 8  # outputs that a thread stores at once

Plan = tuple[Buffer, Buffer]


class TiledMoe:
    name = "moe_tiled"

    def __init__(self, choose: Choose) -> None:
        self._choose = choose

    def suits(self, op: Moe, target: Target) -> str | None:
        if op.routed:
            return "it computes the router's logits itself"
        return _suits(op.gate_up, op.intermediate) or _suits(op.down, op.hidden)

    def launches(self, op: Moe, target: Target) -> list[Work]:
        return [*route(op, target, self._choose), *experts(op, target, self._choose), expert_sum(op)]


def _suits(weight: Matrix, outputs: int) -> str | None:
    """Of one of the matmuls."""
    if weight.scale_form is None:
        return None
    if weight.columns % FP8_GROUP or outputs % GRAIN:
        return (
            f"rows of {weight.columns} in fp8 and {outputs} outputs, no multiples of {FP8_GROUP} and {GRAIN}"
        )
    if weight.scale_form is ScaleForm.BLOCK and outputs % SCALE_BLOCK:
        return f"a block of {SCALE_BLOCK} rows would have rows of two experts, or of gate and up"
    return None


def experts(op: Moe, target: Target, choose: Choose) -> list[Work]:
    """Makes the plan and runs both matmuls of the chosen (token, expert) pairs."""
    buffers, count, per_token = MoeBuffers(op), op.routing.count, op.routing.per_token
    unit = unit_pairs(op)
    units = 1 + op.pairs // unit + min(count, op.pairs)
    plan = (
        Buffer("expert_plan", units, UNIT_BYTES, Element.U8),
        Buffer("expert_pairs", 1, op.pairs, Element.U32),
    )
    gate_up, down = (_matmul(op, target, choose, plan, weight) for weight in (op.gate_up, op.down))
    return [
        Launch(
            "expert_plan_kernel",
            (ceil_div(op.tokens, PLAN_TOKENS), 1, 1),
            (PLAN_THREADS, 1, 1),
            (buffers.choice, *plan, op.tokens, count, per_token, unit),
        ),
        *gate_up,
        *down,
    ]


def unit_pairs(op: Moe) -> int:
    """Pairs of a unit: fewer where a matmul is of fp8."""
    fp8 = op.gate_up.scales or op.down.scales
    return GROUPED_FP8_UNIT if fp8 else GROUPED_UNIT


def _matmul(op: Moe, target: Target, choose: Choose, plan: Plan, weight: Matrix) -> list[Work]:
    """gate_up or down: of fp8, behind the quantisation of its x."""
    buffers, half, count = MoeBuffers(op), op.normed.element.cpp, op.routing.count
    if weight is op.gate_up:
        matmul, x, out, sizes = "blink::kGateUp", op.normed, buffers.product, (op.hidden, op.intermediate)
        shape, box = (2 * count, op.intermediate), (2, GROUPED_WEIGHTS // 2)
    else:
        matmul, x, out, sizes = "blink::kDown", buffers.product, buffers.rows, (op.intermediate, op.hidden)
        shape, box = (count, op.hidden), (1, GROUPED_WEIGHTS)
    kernel = instance(half, matmul, of=weight)
    grid, block = (target.blocks, 1, 1), (GROUPED_THREADS, 1, 1)
    numbers = (*sizes, op.routing.per_token)
    if weight.scales is None:
        w = Tensor(weight, (*shape, weight.columns), (*box, GROUPED_K))
        operands = (*plan, w, x, out, *numbers)
        name, shared_bytes = f"moe_grouped_gemm_kernel<{kernel}>", GROUPED_SHARED_BYTES
        return [Launch(name, grid, block, operands, shared_bytes=shared_bytes)]
    quantize = quantize_for(weight, x)
    w = Tensor(weight, (*shape, weight.columns // WORD), (*box, GROUPED_FP8_K // WORD))
    x_fp8 = Struct(GROUPED_FP8_INPUT, (quantize.out, quantize.scales, quantize.scales.columns))
    name, shared_bytes = f"moe_grouped_fp8_gemm_kernel<{kernel}>", GROUPED_FP8_SHARED_BYTES
    fp8_operands = (*plan, w, weight.scales, x_fp8, out, *numbers)
    launch = Launch(name, grid, block, fp8_operands, shared_bytes=shared_bytes)
    return [*choose(quantize, target).launches, launch]
