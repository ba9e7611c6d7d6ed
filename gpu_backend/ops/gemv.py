"""A matmul of up to 8 rows whose weights stream through registers (kernels/ops/gemm/gemv.h)."""

from __future__ import annotations

from gpu_backend.arithmetic import ceil_div
from gpu_backend.kernel_abi.gemv import GEMV_BLOCKS, GEMV_CHUNK, GEMV_ROUND, GEMV_THREADS
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch
from gpu_backend.ops.matrix import half_only
from gpu_backend.ops.operations import Epilogue, MatMul

GEMV_ROWS = 8  # of x, that the kernel is made for
DENSE_GEMV_ROWS = 4  # up to which it beats SkinnyGemm, if its rounds are whole


def gemv_rows(hidden: int, has_experts: bool) -> int:
    """Rows up to which a model's matmuls are for this kernel: one answer for all of them, since SkinnyGemm
    saves a norm only between two of its own (E19).

    Where a row of `hidden` elements is not read in whole rounds the last is small, too few weights are on
    their way, and SkinnyGemm is faster even for one row.
    """
    if has_experts:
        return GEMV_ROWS
    whole = hidden <= GEMV_ROUND or hidden % GEMV_ROUND == 0
    return DENSE_GEMV_ROWS if whole else 0


class Gemv:
    name = "gemv"

    def suits(self, op: MatMul, target: Target) -> str | None:
        if op.m > target.gemv_rows:
            return f"{op.m} rows, and in this model it is the fastest up to {target.gemv_rows}"
        if op.k % GEMV_CHUNK:
            return f"k is {op.k}, no multiple of {GEMV_CHUNK}"
        return plain(op)

    def launches(self, op: MatMul, target: Target) -> list[Launch]:
        kernel = f"gemv_kernel<{op.weight.element.cpp}, blink::{op.epilogue.value}, 1>"
        tiles = ceil_div(op.n, 8 if op.epilogue is Epilogue.GATED else 16)
        grid = (min(tiles, GEMV_BLOCKS * target.blocks), 1, 1)
        return [
            Launch(kernel, grid, (GEMV_THREADS, 1, 1), (op.weight, op.x, op.out, op.m, op.k, op.n)),
        ]


def plain(op: MatMul) -> str | None:
    """Why a family that fuses nothing, of halves, does not serve: None if nothing is fused."""
    if op.norm or op.takes or op.leaves:
        return "it has no norm"
    return "it has no router" if op.router else half_only(op.weight)
