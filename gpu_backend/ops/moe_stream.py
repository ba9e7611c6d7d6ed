"""Experts of few tokens each, whose weights stream past them (kernels/ops/moe/expert_gemv.h).

The router computes its logits with the norm before it (kernels/ops/moe/router.h). Of up to FEW_TOKENS every
block of gate_up chooses by itself; of more the router's last block does.
"""

from __future__ import annotations

from gpu_backend.arithmetic import ceil_div
from gpu_backend.cuda.driver import ALL_SHARED_BYTES
from gpu_backend.element import Element
from gpu_backend.kernel_abi.expert_gemv import EXPERT_BLOCKS
from gpu_backend.kernel_abi.expert_ring import EXPERT_RING_BYTES, LONG_DOWN_CHUNKS
from gpu_backend.kernel_abi.router import ROUTER_CHUNK, ROUTER_EXPERTS, ROUTER_THREADS, ROUTER_TOKENS
from gpu_backend.kernel_abi.routing import FEW_TOKENS, MAX_EXPERTS
from gpu_backend.kernel_abi.small_batch_plan import EXPERT_THREADS, SMALL_BATCH_TOKENS
from gpu_backend.kernel_abi.small_batch_plan import SMALL_BATCH_PAIRS as MOST_PAIRS
from gpu_backend.ops.gpu import BESIDE_L1_SHARED_BYTES, Target
from gpu_backend.ops.launch import FromStep, Launch, Work, instantiated
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.moe_parts import Choose, MoeBuffers, expert_sum, route, routing_struct
from gpu_backend.ops.operations import Moe, Routing
from gpu_backend.ops.weights import UNSCALED, form_name, instance, lane_weights, weight_operand

# Pairs an expert, on average, up to which reading the weights is all the work.
SMALL_BATCH_PAIRS = MOST_PAIRS // MAX_EXPERTS


def streams_experts(routing: Routing, tokens: int) -> bool:
    """Whether there are so few pairs that reading the experts' weights is all the work."""
    return tokens <= SMALL_BATCH_TOKENS and tokens * routing.per_token <= SMALL_BATCH_PAIRS * routing.count


def expert_input(op: Moe) -> Element:
    """The type of the normed tokens: ExpertInput of kernels/ops/moe/narrow_expert_gemv.h."""
    return Element.FP16 if op.gate_up.element is Element.FP8 else op.normed.element


def ring_bytes(weight: Matrix) -> int:
    """Of shared memory, through which narrow weights go (kernels/ops/moe/expert_ring.h)."""
    return EXPERT_RING_BYTES if weight.scales else 0


def down_matmul(down: Matrix) -> str:
    """Which ExpertMatmul it is (kernels/ops/moe/expert_sums.h)."""
    chunks = ceil_div(down.columns, 4 * lane_weights(down))
    return "blink::kLongDown" if down.groups and chunks >= LONG_DOWN_CHUNKS else "blink::kDown"


def divided_bytes(weight: Matrix) -> int:
    """Launch.divided: a ring takes what there is, and halves are loaded to registers, for which the kernel
    needs L1."""
    return ALL_SHARED_BYTES if weight.scales else BESIDE_L1_SHARED_BYTES


class StreamMoe:
    name = "moe_stream"

    def __init__(self, choose: Choose) -> None:
        self._choose = choose

    def suits(self, op: Moe, target: Target) -> str | None:
        if op.routed:
            return "it computes the router's logits itself"
        if not streams_experts(op.routing, op.tokens):
            return f"{op.tokens} tokens are more than {SMALL_BATCH_TOKENS}, or {SMALL_BATCH_PAIRS} an expert"
        if op.gate_up_bias and op.gate_up.element is Element.FP8:
            return "it adds no bias to products of weights in fp8"
        if op.hidden % ROUTER_CHUNK and expert_input(op) is not op.normed.element:
            return (
                f"{op.hidden} columns are no multiple of {ROUTER_CHUNK}, and only the router norms in float16"
            )
        return None

    def launches(self, op: Moe, target: Target) -> list[Work]:
        buffers, half = MoeBuffers(op), op.normed.element.cpp
        grid, block = (EXPERT_BLOCKS * target.blocks, 1, 1), (EXPERT_THREADS, 1, 1)
        routing, per_token = routing_struct(op, buffers.logits), op.routing.per_token
        apart = op.hidden % ROUTER_CHUNK != 0
        # A kernel that chooses by itself knows no bias: the logits must have it, which router_kernel's do.
        chooses = op.tokens <= FEW_TOKENS and not (apart and op.router_bias)
        chooser = "blink::kRoutingFused" if chooses else "blink::kRoutingGiven"
        sizes = (op.tokens, op.hidden, op.intermediate, per_token)
        form = op.gate_up.scale_form
        choices = ((form_name(form) if form else UNSCALED, UNSCALED), (op.gate_up_bias is not None, False))
        gate_up = Launch(
            instantiated("moe_gemv_kernel", half, "blink::kGateUp", chooser, choices=choices),
            grid,
            block,
            (routing, weight_operand(op.gate_up), op.normed, buffers.product, *sizes, op.gate_up_bias),
            shared_bytes=ring_bytes(op.gate_up),
            divided=divided_bytes(op.gate_up),
        )
        sizes = (op.tokens, op.intermediate, op.hidden, per_token)
        kernel = instance(half, down_matmul(op.down), "blink::kRoutingGiven", of=op.down)
        down = Launch(
            f"moe_gemv_kernel<{kernel}>",
            grid,
            block,
            (routing, weight_operand(op.down), buffers.product, buffers.rows, *sizes, None),
            shared_bytes=ring_bytes(op.down),
            divided=divided_bytes(op.down),
        )
        routed = route(op, target, self._choose) if apart else [self._router(op)]
        return [*routed, gate_up, down, expert_sum(op)]

    @staticmethod
    def _router(op: Moe) -> Launch:
        """The norm and the router's logits in one kernel."""
        buffers, routing = MoeBuffers(op), op.routing
        groups = ceil_div(op.tokens, ROUTER_TOKENS)
        arrivals = Buffer("router_arrivals", 1, groups, Element.U32)
        inputs = (op.residual, op.norm.weight, op.norm.eps, op.router)
        outputs = (op.normed, buffers.logits, *buffers.chosen, arrivals)
        counts = (op.tokens, op.hidden, routing.count, routing.per_token, int(routing.renormalise))
        choices = ((op.router_bias is not None, False),)
        return Launch(
            instantiated("router_kernel", op.router.element.cpp, expert_input(op).cpp, choices=choices),
            (ceil_div(routing.count, ROUTER_EXPERTS), groups, 1),
            (ROUTER_THREADS, 1, 1),
            (FromStep.STEP_SET, *inputs, *outputs, *counts, op.router_bias),
        )
