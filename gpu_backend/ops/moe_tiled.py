"""Experts of many tokens each, in tiles of 256 rows of weights (kernels/ops/moe/grouped_gemm_sm90.h).

A plan groups the pairs of tokens and experts into units of one expert (kernels/ops/moe/expert_plan.h).
"""

from __future__ import annotations

from gpu_backend.arithmetic import ceil_div
from gpu_backend.element import Element
from gpu_backend.kernel_abi.expert_plan import PLAN_THREADS, PLAN_TOKENS, ExpertUnit
from gpu_backend.kernel_abi.grouped_gemm_sm90 import (
    GROUPED_K,
    GROUPED_SHARED_BYTES,
    GROUPED_THREADS,
    GROUPED_UNIT,
    GROUPED_WEIGHTS,
)
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch, Tensor, Work
from gpu_backend.ops.matrix import Buffer, half_only
from gpu_backend.ops.moe_parts import Choose, MoeBuffers, expert_sum, route
from gpu_backend.ops.operations import Moe

UNIT_BYTES = ExpertUnit.itemsize


class TiledMoe:
    name = "moe_tiled"

    def __init__(self, choose: Choose) -> None:
        self._choose = choose

    def suits(self, op: Moe, target: Target) -> str | None:
        return "it computes the router's logits itself" if op.routed else half_only(op.gate_up, op.down)

    def launches(self, op: Moe, target: Target) -> list[Work]:
        return [*route(op, target, self._choose), *experts(op, target), expert_sum(op)]


def experts(op: Moe, target: Target) -> list[Launch]:
    """Makes the plan and runs both matmuls of the chosen (token, expert) pairs."""
    buffers, half, count = MoeBuffers(op), op.gate_up.element.cpp, op.routing.count
    hidden, inter, per_token = op.hidden, op.intermediate, op.routing.per_token
    units = 1 + op.pairs // GROUPED_UNIT + min(count, op.pairs)
    plan = (
        Buffer("expert_plan", units, UNIT_BYTES, Element.U8),
        Buffer("expert_pairs", 1, op.pairs, Element.U32),
    )
    box = (2, GROUPED_WEIGHTS // 2, GROUPED_K)
    gate_up = Tensor(op.gate_up, (2 * count, inter, hidden), box)
    down = Tensor(op.down, (count, hidden, inter), (1, GROUPED_WEIGHTS, GROUPED_K))
    grid, block = (target.blocks, 1, 1), (GROUPED_THREADS, 1, 1)
    return [
        Launch(
            "expert_plan_kernel",
            (ceil_div(op.tokens, PLAN_TOKENS), 1, 1),
            (PLAN_THREADS, 1, 1),
            (buffers.choice, *plan, op.tokens, count, per_token, GROUPED_UNIT),
        ),
        Launch(
            f"moe_grouped_gemm_kernel<{half}, blink::kGateUp>",
            grid,
            block,
            (*plan, gate_up, op.normed, buffers.product, hidden, inter, per_token),
            shared_bytes=GROUPED_SHARED_BYTES,
        ),
        Launch(
            f"moe_grouped_gemm_kernel<{half}, blink::kDown>",
            grid,
            block,
            (*plan, down, buffers.product, buffers.rows, inter, hidden, per_token),
            shared_bytes=GROUPED_SHARED_BYTES,
        ),
    ]
