"""Experts of many tokens each, in tiles of 256 rows of weights (kernels/ops/moe/grouped_gemm_sm90.h).

Weights in four bits become halves as they are multiplied (kernels/ops/moe/grouped_codes_gemm_sm90.h).
Weights in fp8 are multiplied by x in fp8 (kernels/ops/moe/grouped_fp8_gemm_sm90.h): the norm, which the
router needs in the half type, and is quantised behind it, and the product of gate and up, which is quantised
where it is made. A plan groups the pairs of tokens and experts into units of one expert
(kernels/ops/moe/expert_plan.h).
"""

from __future__ import annotations

from gpu_backend.arithmetic import ceil_div
from gpu_backend.element import Element
from gpu_backend.kernel_abi.expert_plan import PLAN_THREADS, PLAN_TOKENS, ExpertUnit
from gpu_backend.kernel_abi.fp8 import FP8_GROUP, SCALE_BLOCK
from gpu_backend.kernel_abi.grouped_codes_gemm_sm90 import (
    GROUPED_CODES_K,
    GROUPED_CODES_SHARED_BYTES,
    GROUPED_CODES_UNIT,
)
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
from gpu_backend.ops.weights import form_name, instance, weight_operand

UNIT_BYTES = ExpertUnit.itemsize
GATE_UP, DOWN = "blink::kGateUp", "blink::kDown"
FP8_ROWS = "<2QI4x"  # GroupedFp8Input, QuantizedProduct
WORD = 16  # bits of what tensor maps count: a half, or several narrow weights
STAGE_COLUMNS = {Element.CODES: GROUPED_CODES_K, Element.FP8: GROUPED_FP8_K}  # of others GROUPED_K
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


def unit_of(op: Moe) -> int:
    """Pairs of a unit: as many as both kernels have registers for."""
    if op.down.element is Element.FP8:
        return GROUPED_FP8_UNIT
    return GROUPED_CODES_UNIT if op.gate_up.groups or op.down.groups else GROUPED_UNIT


def experts(op: Moe, target: Target, choose: Choose) -> list[Work]:
    """Makes the plan and runs both matmuls of the chosen (token, expert) pairs."""
    buffers, count, per_token = MoeBuffers(op), op.routing.count, op.routing.per_token
    in_fp8 = op.down.element is Element.FP8
    unit = unit_of(op)
    units = 1 + op.pairs // unit + min(count, op.pairs)
    plan = (
        Buffer("expert_plan", units, UNIT_BYTES, Element.U8),
        Buffer("expert_pairs", 1, op.pairs, Element.U32),
    )
    make_plan = Launch(
        "expert_plan_kernel<>",
        (ceil_div(op.tokens, PLAN_TOKENS), 1, 1),
        (PLAN_THREADS, 1, 1),
        (buffers.choice, *plan, op.tokens, count, per_token, unit),
    )
    if in_fp8:
        return [make_plan, *_of_fp8(op, target, choose, plan)]
    return [make_plan, *_of_halves(op, target, plan)]


def _of_halves(op: Moe, target: Target, plan: Plan) -> list[Launch]:
    """Products of halves, which codes become as they are multiplied."""
    buffers, half, per_token = MoeBuffers(op), op.normed.element.cpp, op.routing.per_token
    gate_up, down = _maps(op)
    sizes, bias = (op.hidden, op.intermediate), op.gate_up_bias
    gate_up_operands = (op.normed, buffers.product, *sizes, per_token, bias)
    down_operands = (buffers.product, buffers.rows, *reversed(sizes), per_token, None)
    return [
        Launch(
            _kernel_of_halves(half, matmul, weight, biased),
            (target.blocks, 1, 1),
            (GROUPED_THREADS, 1, 1),
            (*plan, tensor, *((weight_operand(weight),) if weight.groups else ()), *operands),
            shared_bytes=GROUPED_CODES_SHARED_BYTES if weight.groups else GROUPED_SHARED_BYTES,
        )
        for matmul, weight, tensor, operands, biased in (
            (GATE_UP, op.gate_up, gate_up, gate_up_operands, bias is not None),
            (DOWN, op.down, down, down_operands, False),
        )
    ]


def _kernel_of_halves(half: str, matmul: str, weight: Matrix, biased: bool) -> str:
    choices = ((biased, False),)
    if weight.groups:
        form = form_name(weight.groups)
        return instantiated("moe_grouped_codes_gemm_kernel", half, matmul, form, choices=choices)
    return instantiated("moe_grouped_gemm_kernel", half, matmul, choices=choices)


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
    gate_up, down = _maps(op)
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


def _maps(op: Moe) -> tuple[Tensor, Tensor]:
    """gate_up and down in boxes of a tile's rows and a stage's columns."""
    count = op.routing.count
    return _map(op.gate_up, 2 * count, 2), _map(op.down, count, 1)


def _map(weight: Matrix, matrices: int, of_tile: int) -> Tensor:
    """The rows of so many matrices, of which a tile has rows of `of_tile`; columns are counted in words."""
    word = WORD // weight.element.n_bits
    k = STAGE_COLUMNS.get(weight.element, GROUPED_K)
    shape = (matrices, weight.rows // matrices, weight.columns // word)
    return Tensor(weight, shape, (of_tile, GROUPED_WEIGHTS // of_tile, k // word))
