"""A matmul of up to 64 rows whose weights stream through shared memory (kernels/ops/gemm/skinny_gemm_sm90.h).

Where a block would have too few rows of weights, a cluster of blocks splits k. Between two of these there is
no norm: both have a part of it (E19).
"""

from __future__ import annotations

from gpu_backend.element import Element
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch, Struct, Tensor
from gpu_backend.ops.matrix import Buffer
from gpu_backend.ops.operations import Epilogue, MatMul, SumsOfSquares
from gpu_backend.ops.skinny_cut import WIDE_ROWS, SkinnyCut, gate_up_boxes, matrix_boxes, skinny_cut

WIDE_NORM = "<QIfQQQ"  # FusedNorm of kernels/ops/gemm/skinny_epilogue_sm90.h


def cut_of(op: MatMul, target: Target) -> SkinnyCut:
    """How the matmul is cut up."""
    sizes = (op.m, op.k, op.n, op.epilogue)
    return skinny_cut(*sizes, target.multiprocessors, target.rooms(op.ends_step))


def sums_of(op: MatMul, target: Target) -> Buffer:
    """What a matmul leaves for the norm behind it."""
    cut = cut_of(op, target)
    return Buffer("sums", cut.n_sums, cut.columns, Element.FP32)


class SkinnyGemm:
    name = "skinny_gemm"

    def suits(self, op: MatMul, target: Target) -> str | None:
        if op.m > WIDE_ROWS:
            return f"{op.m} rows, and cuBLAS is faster beyond {WIDE_ROWS}"
        if op.norm or op.router:
            return "it has only a part of a norm, and no router"
        if (op.takes or op.leaves) and op.weight.element is not Element.BF16:
            return f"what it leaves before its norm is known might overflow {op.weight.element.dtype}"
        return None

    def launches(self, op: MatMul, target: Target) -> list[Launch]:
        cut = cut_of(op, target)
        boxes = gate_up_boxes if op.epilogue is Epilogue.GATED else matrix_boxes
        w, x = boxes(op.k, op.n, cut.tile_rows), matrix_boxes(op.k, op.m, cut.columns)
        maps = (Tensor(op.weight, w.shape, w.box, w.strides), Tensor(op.x, x.shape, x.box, x.strides))
        instance = f"{op.weight.element.cpp}, blink::{op.epilogue.value}"
        return [
            Launch(
                f"skinny_gemm_kernel<{instance}, {cut.columns}, {cut.tiles}, {cut.splits}>",
                (cut.splits, cut.clusters(target.blocks), 1),
                (cut.threads, 1, 1),
                (*maps, op.out, cut.pack(), _norm(op.takes, op.leaves)),
                shared_bytes=cut.shared_bytes,
                cluster=cut.splits if cut.splits > 1 else 0,
            )
        ]


def _norm(takes: SumsOfSquares | None, leaves: SumsOfSquares | None) -> Struct:
    """FusedNorm: the sums that are taken, their number and eps; the weight, and where things are left."""
    taken = (takes.buffer, takes.count, takes.norm.eps) if takes else (None, 0, 0.0)
    left = (leaves.norm.weight, leaves.scaled, leaves.buffer) if leaves else (None, None, None)
    return Struct(WIDE_NORM, (*taken, *left))
