"""Experts of one token (kernels/ops/moe/single_token.h): the matmul before has summed the router's logits,
gate_up
norms and chooses, down adds up."""

from __future__ import annotations

from gpu_backend.element import Element
from gpu_backend.kernel_abi.fused_router import SUM_PLACES
from gpu_backend.kernel_abi.gemv import GEMV_BLOCKS, GEMV_THREADS
from gpu_backend.kernel_abi.single_token import SINGLE_EXPERTS
from gpu_backend.ops.gpu import BESIDE_L1_SHARED_BYTES, Target
from gpu_backend.ops.launch import Launch
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.moe_parts import MoeBuffers, routing_struct
from gpu_backend.ops.operations import Moe
from gpu_backend.ops.weights import instance, lane_weights, weight_operand

# Halves at most that a block holds, in the shared memory that every kernel may have: the normed token, and of
# experts in fp8 the product.
MOST_RESIDENT = 16384


def one_slice(down: Matrix) -> int:
    """k: a chunk, which is four lanes', for each half of an output's."""
    return 2 * 4 * lane_weights(down)


def resident_elements(op: Moe) -> int:
    """Halves of the product that a block of down holds."""
    return op.routing.per_token * op.intermediate if op.down.scales else 0


def router_sums(count: int) -> Buffer:
    """[SUM_PLACES][count], zero between layers."""
    return Buffer("router_sums", SUM_PLACES, count, Element.I64)


class OneTokenMoe:
    name = "moe_one"

    def suits(self, op: Moe, target: Target) -> str | None:
        if op.tokens != 1:
            return f"{op.tokens} tokens, and it is for one"
        if not op.routed:
            return "no matmul before it has summed the router's logits"
        if op.norm_after:
            return "it has no norm behind it"
        if op.router_bias or op.gate_up_bias or op.down_bias:
            return "it adds no bias"
        sliced = op.intermediate % one_slice(op.down) == 0
        resident = max(op.hidden, resident_elements(op))
        if not sliced or op.routing.per_token > SINGLE_EXPERTS or resident > MOST_RESIDENT:
            return "there is no instance for these sizes"
        return None

    def launches(self, op: Moe, target: Target) -> list[Launch]:
        buffers, half = MoeBuffers(op), op.normed.element
        sums, per_token = router_sums(op.routing.count), op.routing.per_token
        grid, block = (GEMV_BLOCKS * target.blocks, 1, 1), (GEMV_THREADS, 1, 1)
        norm = (op.residual, op.norm.weight, op.norm.eps)
        gate_up = (weight_operand(op.gate_up), buffers.product, op.hidden, op.intermediate, per_token)
        down = (weight_operand(op.down), buffers.product, op.residual, op.intermediate, op.hidden, per_token)
        return [
            Launch(
                f"moe_single_token_gate_up_kernel<{instance(half.cpp, of=op.gate_up)}>",
                grid,
                block,
                (routing_struct(op, sums), *norm, *gate_up),
                shared_bytes=half.n_bytes * op.hidden,
                divided=BESIDE_L1_SHARED_BYTES,
            ),
            Launch(
                f"moe_single_token_down_kernel<{instance(half.cpp, of=op.down)}>",
                grid,
                block,
                (*buffers.chosen, sums, SUM_PLACES * op.routing.count, *down),
                shared_bytes=half.n_bytes * resident_elements(op),
                divided=BESIDE_L1_SHARED_BYTES,
            ),
        ]
