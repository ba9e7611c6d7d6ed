"""A matmul of up to 64 rows whose weights stream through shared memory (kernels/ops/gemm/skinny_gemm_sm90.h).

If a block would have too few rows of weights, a cluster of blocks splits k. A norm between two such matmuls
needs no kernel of its own: each of the two does a part of it (E19).
"""

from __future__ import annotations

from gpu_backend.element import Element
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch, Struct, Tensor
from gpu_backend.ops.matrix import Buffer
from gpu_backend.ops.operations import Epilogue, MatMul, SumsOfSquares
from gpu_backend.ops.skinny_cut import SKINNY_MAX_ROWS, SkinnyCut, gate_up_boxes, matrix_boxes, skinny_cut
from gpu_backend.ops.weights import instance, weight_operand
from gpu_backend.ops.weights_ahead import NOTHING_AHEAD, weights_ahead

FUSED_NORM = "<QIfQQQ"  # FusedNorm of kernels/ops/gemm/skinny_epilogue_sm90.h
WORD = 16  # bits that the kernel counts in: halves, or twice as many elements of fp8, or four times codes


def tiling_of(op: MatMul, target: Target) -> SkinnyCut:
    """The tiling of the matmul on this GPU."""
    sizes = (op.m, op.k, op.n, op.epilogue)
    rooms = target.rooms(op.ends_step)
    return skinny_cut(*sizes, target.multiprocessors, rooms, WORD // op.weight.element.n_bits)


def sums_of(op: MatMul, target: Target) -> Buffer:
    """The buffer of the sums of squares that a matmul leaves for the norm after it."""
    tiling = tiling_of(op, target)
    return Buffer("sums", tiling.n_sums, tiling.columns, Element.FP32)


class SkinnyGemm:
    name = "skinny_gemm"

    def suits(self, op: MatMul, target: Target) -> str | None:
        if target.beyond_hopper:
            return target.beyond_hopper
        if op.m > SKINNY_MAX_ROWS:
            return f"{op.m} rows, and cuBLAS is faster beyond {SKINNY_MAX_ROWS}"
        if op.x_scales is not None:
            return "it multiplies x in halves"
        if op.norm or op.router:
            return "it has only a part of a norm, and no router"
        if (op.takes or op.leaves) and op.x.element is not Element.BF16:
            return f"what it leaves before its norm is known might overflow {op.x.element.dtype}"
        return None

    def launches(self, op: MatMul, target: Target) -> list[Launch]:
        return [skinny_launch(op, tiling_of(op, target), target)]


def skinny_launch(op: MatMul, tiling: SkinnyCut, target: Target) -> Launch:
    """That of the kernel for an operation that is cut so."""
    boxes = gate_up_boxes if op.epilogue is Epilogue.GATED else matrix_boxes
    w = boxes(op.k // tiling.x_panels, op.n, tiling.tile_rows)
    x = matrix_boxes(op.k, op.m, tiling.columns)
    maps = (Tensor(op.weight, w.shape, w.box, w.strides), Tensor(op.x, x.shape, x.box, x.strides))
    sizes = (str(n) for n in (tiling.columns, tiling.tiles, tiling.splits))
    kernel = instance(op.x.element.cpp, f"blink::{op.epilogue.value}", *sizes, of=op.weight)
    ahead = NOTHING_AHEAD
    if op.ahead and tiling.waits_for_x:
        ahead = weights_ahead(op.ahead, tiling_of(op.ahead, target), target.blocks)
    return Launch(
        f"skinny_gemm_kernel<{kernel}>",
        (tiling.splits, tiling.clusters(target.blocks), 1),
        (tiling.threads, 1, 1),
        (*maps, op.out, tiling.pack(), _factors(op), ahead),
        shared_bytes=tiling.shared_bytes,
        cluster=tiling.splits if tiling.splits > 1 else 0,
    )


def _factors(op: MatMul) -> Struct:
    """SkinnyFactors: FusedNorm, and the scales of weights in fp8, or a CodeMatrix."""
    norm = _norm(op.takes, op.leaves)
    if isinstance(codes := weight_operand(op.weight), Struct) and op.weight.groups:
        return Struct(norm.format + codes.format.removeprefix("<"), (*norm.parts, *codes.parts))
    if op.weight.scales is None:
        return norm
    return Struct(norm.format + "Q", (*norm.parts, op.weight.scales))


def _norm(takes: SumsOfSquares | None, leaves: SumsOfSquares | None) -> Struct:
    """FusedNorm: the sums of squares that are read, their number and eps; then the next norm's weight, and
    where the scaled rows and their sums of squares are written."""
    taken = (takes.buffer, takes.count, takes.norm.eps) if takes else (None, 0, 0.0)
    left = (leaves.norm.weight, leaves.scaled, leaves.buffer) if leaves else (None, None, None)
    return Struct(FUSED_NORM, (*taken, *left))
