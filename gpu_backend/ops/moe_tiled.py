"""Experts of many tokens each, in tiles of 256 rows of weights (kernels/ops/moe/grouped_gemm_sm90.h).

Weights in fp8 are multiplied by x in fp8 (kernels/ops/moe/grouped_fp8_gemm_sm90.h): the norm, which the
router needs in the half type, and is quantised behind it, and the product of gate and up, which is quantised
where it is made. A plan groups the pairs of tokens and experts into units of one expert
(kernels/ops/moe/expert_plan.h).
"""

from __future__ import annotations

from dataclasses import replace

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
from gpu_backend.ops.launch import Launch, Struct, Tensor, Work, instantiated
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.moe_parts import Choose, MoeBuffers, expert_sum, route
from gpu_backend.ops.operations import Moe
from gpu_backend.ops.quantize import quantize_for
from gpu_backend.ops.unpacked import unpacked
from gpu_backend.ops.weights import instance

UNIT_BYTES = ExpertUnit.itemsize
GATE_UP, DOWN = "blink::kGateUp", "blink::kDown"
FP8_ROWS = "<2QI4x"  # GroupedFp8Input, QuantizedProduct
WORD = 2  # elements of fp8 in a word of 16 bits, of which the kernel copies rows
GRAIN = 8  # outputs that a thread stores at once

Plan = tuple[Buffer, Buffer]


class TiledMoe:
    name = "moe_tiled"

    def __init__(self, choose: Choose) -> None:
        self._choose = choose

    def suits(self, op: Moe, target: Target) -> str | None:
        if target.beyond_hopper:
            return target.beyond_hopper
        if op.routed:
            return "it computes the router's logits itself"
        if len({op.gate_up.element is Element.FP8, op.down.element is Element.FP8}) > 1:
            return "gate_up and down are both in fp8, or neither is"
        if op.gate_up_bias and op.gate_up.element is Element.FP8:
            return "it adds no bias to products of weights in fp8"
        return _suits(op.gate_up, op.intermediate) or _suits(op.down, op.hidden)

    def launches(self, op: Moe, target: Target) -> list[Work]:
        return [*route(op, target, self._choose), *experts(op, target, self._choose), expert_sum(op)]


def _suits(weight: Matrix, outputs: int) -> str | None:
    """Of one of the matmuls."""
    if weight.element is not Element.FP8:
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
    in_fp8 = op.down.element is Element.FP8
    unit = GROUPED_FP8_UNIT if in_fp8 else GROUPED_UNIT
    units = 1 + op.pairs // unit + min(count, op.pairs)
    plan = (
        Buffer("expert_plan", units, UNIT_BYTES, Element.U8),
        Buffer("expert_pairs", 1, op.pairs, Element.U32),
    )
    make_plan = Launch(
        "expert_plan_kernel",
        (ceil_div(op.tokens, PLAN_TOKENS), 1, 1),
        (PLAN_THREADS, 1, 1),
        (buffers.choice, *plan, op.tokens, count, per_token, unit),
    )
    if in_fp8:
        return [make_plan, *_of_fp8(op, target, choose, plan)]
    return [make_plan, *_of_halves(op, target, plan)]


def _of_halves(op: Moe, target: Target, plan: Plan) -> list[Launch]:
    """A matrix of codes is unpacked before its matmul, which begins when that is there."""
    unpack_gate_up, w_gate_up = _halves(op.gate_up, op, target)
    unpack_down, w_down = _halves(op.down, op, target)
    op = replace(op, gate_up=w_gate_up, down=w_down)
    gate_up, down = _products_of_halves(op, target, plan)
    return [*unpack_gate_up, gate_up, *unpack_down, down]


def _halves(weight: Matrix, op: Moe, target: Target) -> tuple[list[Launch], Matrix]:
    if not weight.groups:
        return [], weight
    launch, matrix = unpacked(weight, op.normed.element, target)
    return [launch], matrix


def _products_of_halves(op: Moe, target: Target, plan: Plan) -> list[Launch]:
    buffers, half, per_token = MoeBuffers(op), op.normed.element.cpp, op.routing.per_token
    gate_up, down = _maps(op, op.hidden, op.intermediate, GROUPED_K)
    sizes, bias = (op.hidden, op.intermediate), op.gate_up_bias
    gate_up_operands = (gate_up, op.normed, buffers.product, *sizes, per_token, bias)
    down_operands = (down, buffers.product, buffers.rows, *reversed(sizes), per_token, None)
    return [
        Launch(
            instantiated("moe_grouped_gemm_kernel", half, matmul, choices=((biased, False),)),
            (target.blocks, 1, 1),
            (GROUPED_THREADS, 1, 1),
            (*plan, *operands),
            shared_bytes=GROUPED_SHARED_BYTES,
        )
        for matmul, operands, biased in (
            (GATE_UP, gate_up_operands, bias is not None),
            (DOWN, down_operands, False),
        )
    ]


def _of_fp8(op: Moe, target: Target, choose: Choose, plan: Plan) -> list[Work]:
    """The norm is quantised by itself, the product by gate_up."""
    buffers, half, sizes = MoeBuffers(op), op.normed.element.cpp, (op.hidden, op.intermediate)
    quantize = quantize_for(op.gate_up, op.normed)
    x, product = (
        Struct(FP8_ROWS, (elements, scales, scales.columns))
        for elements, scales in (
            (quantize.out, quantize.scales),
            (buffers.product_fp8, buffers.product_scales),
        )
    )
    gate_up, down = _maps(op, op.hidden // WORD, op.intermediate // WORD, GROUPED_FP8_K // WORD)
    gate_up_operands = (gate_up, op.gate_up.scales, x, product, *sizes)
    down_operands = (down, op.down.scales, product, buffers.rows, *reversed(sizes))
    matmuls = ((GATE_UP, op.gate_up, gate_up_operands), (DOWN, op.down, down_operands))
    return [
        *choose(quantize, target).launches,
        *(
            Launch(
                f"moe_grouped_fp8_gemm_kernel<{instance(half, matmul, of=weight)}>",
                (target.blocks, 1, 1),
                (GROUPED_THREADS, 1, 1),
                (*plan, *operands, op.routing.per_token),
                shared_bytes=GROUPED_FP8_SHARED_BYTES,
            )
            for matmul, weight, operands in matmuls
        ),
    ]


def _maps(op: Moe, hidden: int, intermediate: int, columns: int) -> tuple[Tensor, Tensor]:
    """gate_up and down in boxes of so many columns; sizes in words of 16 bits."""
    count, box = op.routing.count, (2, GROUPED_WEIGHTS // 2, columns)
    return (
        Tensor(op.gate_up, (2 * count, op.intermediate, hidden), box),
        Tensor(op.down, (count, op.hidden, intermediate), (1, GROUPED_WEIGHTS, columns)),
    )
