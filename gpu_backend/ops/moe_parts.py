"""What the kernels of experts share: their buffers, the router's launches, and the sum at the end."""

from __future__ import annotations

from collections.abc import Callable

from gpu_backend.arithmetic import ceil_div
from gpu_backend.element import Element
from gpu_backend.kernel_abi.fp8 import SCALE_BLOCK
from gpu_backend.kernel_abi.routing import ROUTE_WARPS
from gpu_backend.ops.candidate import Choice
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import FromStep, Launch, Struct, Work, instantiated
from gpu_backend.ops.matrix import Buffer
from gpu_backend.ops.operations import Epilogue, MatMul, Moe, Operation, RmsNorm, Role

NORM_THREADS = 256

Choose = Callable[[Operation, Target], Choice]


class MoeBuffers:
    """Of one operation; a pair is a token and one of its experts."""

    def __init__(self, op: Moe) -> None:
        half, routing = op.normed.element, op.routing
        self.logits = Buffer("router_logits", op.tokens, routing.count, Element.FP32)
        self.choice = Buffer("expert_choice", op.tokens, routing.per_token, Element.U32)
        self.weight = Buffer("expert_weight", op.tokens, routing.per_token, Element.FP32)
        self.product = Buffer("expert_product", op.pairs, op.intermediate, half)
        self.product_fp8 = Buffer("expert_product_fp8", op.pairs, op.intermediate, Element.FP8)
        blocks = ceil_div(op.intermediate, SCALE_BLOCK)
        self.product_scales = Buffer("expert_product_scales", blocks, op.pairs, Element.FP32)
        self.rows = Buffer("expert_rows", op.pairs, op.hidden, half)

    @property
    def chosen(self) -> tuple[Buffer, Buffer]:
        return self.choice, self.weight


def routing_struct(op: Moe, logits: Buffer) -> Struct:
    """What blocks that choose by themselves need: the step set, addresses, count and renormalise."""
    buffers = MoeBuffers(op)
    counts = (op.routing.count, int(op.routing.renormalise))
    return Struct("<3Q2I", (logits, *buffers.chosen, *counts), FromStep.STEP_SET)


def route(op: Moe, target: Target, choose: Choose) -> list[Work]:
    """Norm, the router's matmul and top-k, each by itself."""
    buffers, routing = MoeBuffers(op), op.routing
    router = MatMul(Role.ROUTER, op.router, op.normed, buffers.logits, Epilogue.STORE_FP32)
    counts = (op.tokens, routing.count, routing.per_token, int(routing.renormalise))
    bias = op.router_bias
    top_k = Launch(
        f"route_biased_kernel<{bias.element.cpp}>" if bias else "route_kernel<>",
        (ceil_div(op.tokens, ROUTE_WARPS), 1, 1),
        (32 * ROUTE_WARPS, 1, 1),
        (FromStep.STEP_SET, buffers.logits, *((bias,) if bias else ()), *buffers.chosen, *counts),
    )
    norm = choose(RmsNorm(op.residual, op.norm, op.normed), target)
    return [*norm.launches, *choose(router, target).launches, top_k]


def expert_sum(op: Moe) -> Launch:
    """The weighted sum of each token's rows, which get experts' biases here, and the norm behind it."""
    buffers, half = MoeBuffers(op), op.normed.element.cpp
    grid, block = (op.tokens, 1, 1), (NORM_THREADS, 1, 1)
    total = (buffers.rows, *buffers.chosen, op.residual)
    sizes = (op.hidden, op.routing.per_token)
    biased = ((op.down_bias is not None, False),)
    if op.norm_after is None:
        kernel = instantiated("moe_combine_kernel", half, choices=biased)
        return Launch(kernel, grid, block, (*total, *sizes, op.down_bias))
    norm = (op.norm_after.weight, op.norm_after.eps, op.normed)
    kernel = instantiated("moe_combine_rmsnorm_kernel", half, choices=biased)
    return Launch(kernel, grid, block, (*total, *norm, *sizes, op.down_bias, op.adds))
