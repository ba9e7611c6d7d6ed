"""A matmul of many rows in tiles, followed by silu * mul or an addition
(kernels/ops/gemm/tiled_gemm_sm90.h)."""

from __future__ import annotations

from gpu_backend.kernel_abi.tiled_epilogue_sm90 import TILED_BOX
from gpu_backend.kernel_abi.tiled_gemm_sm90 import TILED_ROWS, TILED_SHARED_BYTES, TILED_THREADS
from gpu_backend.ops.gemv import plain
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch, Tensor
from gpu_backend.ops.operations import Epilogue, MatMul
from gpu_backend.ops.skinny_cut import gate_up_boxes, matrix_boxes
from gpu_backend.ops.tiled_cut import (
    PAIR,
    TiledParams,
    tiled_cut,
    tiled_refusal,
)

BOX_OUTPUTS = 32  # of a box of y: 64 bytes of halves, 128 of fp32


class TiledGemm:
    name = "tiled_gemm"

    def suits(self, op: MatMul, target: Target) -> str | None:
        sizes = (op.m, op.k, op.n, op.epilogue)
        return target.beyond_hopper or plain(op) or tiled_refusal(*sizes, target.multiprocessors)

    def launches(self, op: MatMul, target: Target) -> list[Launch]:
        tiling = tiled_cut(op.m, op.k, op.n, op.epilogue, target.multiprocessors)
        return [tiled_launch(op, tiling, target)]


def tiled_launch(op: MatMul, tiling: TiledParams, target: Target) -> Launch:
    """The launch of the kernel for an operation with this tiling."""
    boxes = gate_up_boxes if op.epilogue is Epilogue.GATED else matrix_boxes
    w, x = boxes(op.k, op.n, TILED_ROWS), matrix_boxes(op.k, op.m, tiling.columns // PAIR)
    adds = op.epilogue is Epilogue.ADD
    maps = (
        Tensor(op.weight, w.shape, w.box, w.strides),
        Tensor(op.x, x.shape, x.box, x.strides),
        Tensor(op.out, (op.m, op.n), (TILED_BOX, BOX_OUTPUTS), fp32=adds),
    )
    return Launch(
        f"tiled_gemm_kernel<{op.weight.element.cpp}, blink::{op.epilogue.value}>",
        (PAIR * tiling.pairs(target.multiprocessors), 1, 1),
        (TILED_THREADS, 1, 1),
        (*maps, tiling.pack()),
        shared_bytes=TILED_SHARED_BYTES,
        cluster=PAIR,
    )
