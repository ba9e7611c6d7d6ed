"""A matmul of one or two rows, which blocks hold in shared memory (kernels/ops/gemm/resident_gemv.h).

It serves attention's matrices beside experts. In a dense model steps of few rows are one kernel.
"""

from __future__ import annotations

from gpu_backend.arithmetic import ceil_div
from gpu_backend.kernel_abi.gemv import GEMV_BLOCKS, GEMV_THREADS, GEMV_WARPS
from gpu_backend.kernel_abi.resident_gemv import RESIDENT_OUTPUTS, RESIDENT_PAD, RESIDENT_TOKENS
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch, Struct
from gpu_backend.ops.matrix import Matrix
from gpu_backend.ops.operations import Epilogue, MatMul, Role
from gpu_backend.ops.weights import instance, lane_weights, weight_operand

LEAST_BUSY = 0.75  # of the blocks, on average; measured: at 0.69, SkinnyGemm reads o in 0.8 of the time
CHUNKS = (1, 2, 4, 8)  # of a tile and a warp: kResidentDepth or a divisor, or as many as registers hold
ROUTER_PART = "<3QI4x"  # FusedRouter of kernels/ops/moe/fused_router.h


def resident_slice(weight: Matrix) -> int:
    """k: a chunk, which is four lanes', for each half of each of the block's warps."""
    return 2 * GEMV_WARPS * 4 * lane_weights(weight)


class ResidentGemv:
    name = "resident_gemv"

    def suits(self, op: MatMul, target: Target) -> str | None:
        """It multiplies normed rows of the residual for qkv, and adds o's result to the residual."""
        if not target.has_experts or op.role not in (Role.QKV, Role.O):
            return "it is for attention's matrices beside experts"
        if op.m > RESIDENT_TOKENS:
            return f"{op.m} rows, and shared memory is to hold {RESIDENT_TOKENS}"
        one_slice = resident_slice(op.weight)
        if op.k % one_slice or op.n % RESIDENT_OUTPUTS or op.k // one_slice not in CHUNKS:
            return f"there is no instance for k {op.k} and n {op.n}"
        blocks, tiles = GEMV_BLOCKS * target.blocks, op.n // RESIDENT_OUTPUTS
        idle = blocks < tiles < LEAST_BUSY * blocks * ceil_div(tiles, blocks)
        if op.role is Role.O and idle and not op.router:  # which this kernel alone can take
            return f"{tiles} tiles leave many of {blocks} blocks idle"
        if op.takes or op.leaves:
            return "it has no part of a norm"
        if op.epilogue is not (Epilogue.STORE if op.norm else Epilogue.ADD):
            return "it stores products of a norm, and adds others"
        if op.router and op.m > 1:
            return "it has a router for one row"
        return None

    def launches(self, op: MatMul, target: Target) -> list[Launch]:
        normed = "true" if op.norm else "false"
        half = op.norm.weight.element if op.norm else op.x.element
        chunks = str(op.k // resident_slice(op.weight))
        kernel = instance(half.cpp, f"blink::{op.epilogue.value}", chunks, normed, of=op.weight)
        norm = (op.norm.weight, op.norm.eps) if op.norm else (None, 0.0)
        part = Struct(ROUTER_PART, (None, None, None, 0))
        if op.router:
            router = op.router.router
            part = Struct(ROUTER_PART, (op.router.norm.weight, router, op.router.sums, router.rows))
        return [
            Launch(
                f"resident_gemv_kernel<{kernel}>",
                (min(op.n // RESIDENT_OUTPUTS, GEMV_BLOCKS * target.blocks), 1, 1),
                (GEMV_THREADS, 1, 1),
                (weight_operand(op.weight), op.x, *norm, op.out, op.m, op.n, part),
                shared_bytes=half.n_bytes * op.m * (op.k + RESIDENT_PAD),
            )
        ]
