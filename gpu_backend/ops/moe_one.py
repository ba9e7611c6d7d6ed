"""Experts of one token (kernels/ops/moe/single_token.h): the matmul before has summed the router's logits,
gate_up norms and chooses, down adds up. Those of codes with biases are kernels of their own
(kernels/ops/moe/single_token_codes.h)."""

from __future__ import annotations

from gpu_backend.cuda.driver import ALL_SHARED_BYTES
from gpu_backend.element import Element
from gpu_backend.kernel_abi.codes import CODE_GROUP
from gpu_backend.kernel_abi.expert_ring import EXPERT_RING_BYTES
from gpu_backend.kernel_abi.fused_router import SUM_PLACES
from gpu_backend.kernel_abi.gemv import GEMV_BLOCKS, GEMV_THREADS
from gpu_backend.kernel_abi.single_token import SINGLE_EXPERTS
from gpu_backend.kernel_abi.single_token_codes import (
    CODES_MOST_COLUMNS,
    CODES_MOST_HIDDEN,
    FEW_DOWN_BYTES,
    FEW_EXPERTS,
)
from gpu_backend.ops.gpu import BESIDE_L1_SHARED_BYTES, Target
from gpu_backend.ops.launch import Launch, Operand, instantiated
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.moe_parts import MoeBuffers, routing_struct
from gpu_backend.ops.operations import Moe
from gpu_backend.ops.weights import UNSCALED, form_name, instance, lane_weights, weight_operand

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


def biases(op: Moe) -> tuple[Matrix | None, Matrix | None, Matrix | None]:
    return op.router_bias, op.gate_up_bias, op.down_bias


def is_biased(op: Moe) -> bool:
    return any(biases(op))


def is_ring(op: Moe) -> bool:
    """Whether weights go through shared memory."""
    return is_biased(op) and op.down.groups is not None


def ring_kernels(op: Moe) -> tuple[tuple[str, int], ...]:
    """Of gate_up and of down the instance, and bytes of shared memory."""
    half = op.normed.element
    gate_up, down = instance(half.cpp, of=op.gate_up), instance(half.cpp, of=op.down)
    return (
        (f"moe_single_codes_gate_up_kernel<{gate_up}>", EXPERT_RING_BYTES + half.n_bytes * op.hidden),
        (f"moe_single_codes_down_kernel<{down}>", FEW_DOWN_BYTES),
    )


def register_kernels(op: Moe) -> tuple[tuple[str, int], ...]:
    """The same where weights go to registers."""
    half = op.normed.element

    def kernel(name: str, of: Matrix) -> str:
        form = (form_name(of.scale_form) if of.scale_form else UNSCALED, UNSCALED)
        return instantiated(name, half.cpp, choices=(form, (is_biased(op), False)))

    return (
        (kernel("moe_single_token_gate_up_kernel", op.gate_up), half.n_bytes * op.hidden),
        (kernel("moe_single_token_down_kernel", op.down), half.n_bytes * resident_elements(op)),
    )


class OneTokenMoe:
    name = "moe_one"

    def suits(self, op: Moe, target: Target) -> str | None:
        if op.tokens != 1:
            return f"{op.tokens} tokens, and it is for one"
        if not op.routed:
            return "no matmul before it has summed the router's logits"
        if op.norm_after:
            return "it has no norm behind it"
        if is_biased(op) and not all(biases(op)):
            return "it adds biases of the router, gate_up and down, or none"
        if is_biased(op) and Element.FP8 in (op.gate_up.element, op.down.element):
            return "it adds no bias to products of weights in fp8"
        if is_biased(op) and (op.gate_up.groups is None) != (op.down.groups is None):
            return "it adds biases if both matrices are of codes, or neither"
        fits = self._fits_ring(op) if is_ring(op) else self._fits(op)
        return None if fits else "there is no instance for these sizes"

    @staticmethod
    def _fits(op: Moe) -> bool:
        sliced = op.intermediate % one_slice(op.down) == 0
        resident = max(op.hidden, resident_elements(op))
        return sliced and op.routing.per_token <= SINGLE_EXPERTS and resident <= MOST_RESIDENT

    @staticmethod
    def _fits_ring(op: Moe) -> bool:
        """A thread holds its part of the token, and a warp its part of the product."""
        whole = op.hidden % CODE_GROUP == 0 and op.intermediate % CODE_GROUP == 0
        held = op.hidden <= CODES_MOST_HIDDEN and op.intermediate <= CODES_MOST_COLUMNS
        return whole and held and op.routing.per_token <= FEW_EXPERTS

    def launches(self, op: Moe, target: Target) -> list[Launch]:
        buffers, per_token = MoeBuffers(op), op.routing.per_token
        sums = router_sums(op.routing.count)
        norm = (op.residual, op.norm.weight, op.norm.eps)
        chosen = (*buffers.chosen, sums, SUM_PLACES * op.routing.count)
        matrices = (weight_operand(op.gate_up), buffers.product, op.hidden, op.intermediate, per_token)
        gate_up = (routing_struct(op, sums), *norm, *matrices, op.router_bias, op.gate_up_bias)
        to_residual = (weight_operand(op.down), buffers.product, op.residual)
        down = (*chosen, *to_residual, op.intermediate, op.hidden, per_token, op.down_bias)
        kernels = ring_kernels(op) if is_ring(op) else register_kernels(op)
        operands_of: tuple[tuple[Operand, ...], ...] = (gate_up, down)
        return [
            Launch(
                kernel,
                (GEMV_BLOCKS * target.blocks, 1, 1),
                (GEMV_THREADS, 1, 1),
                operands,
                shared_bytes=shared_bytes,
                divided=ALL_SHARED_BYTES if is_ring(op) else BESIDE_L1_SHARED_BYTES,
            )
            for (kernel, shared_bytes), operands in zip(kernels, operands_of, strict=True)
        ]
