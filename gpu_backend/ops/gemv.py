"""A matmul of up to 8 rows whose weights stream through registers (kernels/ops/gemm/gemv.h), or those of
four bits through shared memory (code_gemv_sm90.h)."""

from __future__ import annotations

from gpu_backend.arithmetic import ceil_div
from gpu_backend.cuda.chip import HOPPER, Capability
from gpu_backend.kernel_abi.code_gemv_sm90 import (
    CODE_CHUNKS,
    CODE_GEMV_BYTES,
    CODE_GEMV_COLUMNS,
    CODE_GEMV_HELD_STAGES,
    CODE_GEMV_INTEGER_BYTES,
    CODE_GEMV_SUM_BYTES,
    CODE_SCALE_ALIGN,
)
from gpu_backend.kernel_abi.gemv import GEMV_BLOCKS, GEMV_ROUND, GEMV_THREADS
from gpu_backend.models.quantization import Codes, GroupForm
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch
from gpu_backend.ops.matrix import Matrix, half_only
from gpu_backend.ops.operations import Epilogue, MatMul
from gpu_backend.ops.weights import instance, lane_weights, weight_operand

GEMV_ROWS = 8  # of x, that the kernel is made for
DENSE_GEMV_ROWS = 4  # up to which it beats SkinnyGemm in a dense model, if its rounds are whole


def gemv_rows(hidden: int, has_experts: bool, capability: Capability = HOPPER) -> int:
    """Rows up to which a model's matmuls are for this kernel, and the head unless SkinnyGemm reads it faster:
    one answer for all of them, since SkinnyGemm saves a norm only between two of its own (E19); but for those
    of `rows_of`. Where that does not serve, cuBLAS does from there on.

    Where a row of `hidden` elements is not read in whole rounds the last is small, too few weights are on
    their way, and SkinnyGemm is faster even for one row.
    """
    if capability != HOPPER:
        return GEMV_ROWS
    whole = hidden <= GEMV_ROUND or hidden % GEMV_ROUND == 0
    return (GEMV_ROWS if has_experts else DENSE_GEMV_ROWS) if whole else 0


def rows_of(op: MatMul, target: Target) -> int:
    """The same of one matmul. With weights in four bits that are numbers it takes 8B's layers 64 us at 8
    rows, and SkinnyGemm 77; with integers, whose columns of x each lane loads two at a time, it takes longer.
    """
    is_numbers = op.weight.groups is not None and op.weight.groups.codes is Codes.E2M1
    return GEMV_ROWS if is_numbers and target.gemv_rows else target.gemv_rows


class Gemv:
    name = "gemv"

    def suits(self, op: MatMul, target: Target) -> str | None:
        if op.m > (most := rows_of(op, target)):
            return f"{op.m} rows, and in this model it is the fastest up to {most}"
        if op.weight.groups and target.beyond_hopper:
            return target.beyond_hopper
        if op.ends_step and not target.keeps_l1 and target.beyond_hopper is None:
            # Where the step keeps L1, blocks of SkinnyGemm would have to wait until their multiprocessor is
            # idle, which the gate of the next step may delay. Of few rows, they do not gain as much.
            return "SkinnyGemm reads the head faster"
        chunk = 4 * lane_weights(op.weight)  # four lanes of a row
        if op.k % chunk:
            return f"k is {op.k}, no multiple of {chunk}"
        if op.weight.groups and op.weight.scales and row_bytes(op.weight.scales) % CODE_SCALE_ALIGN:
            return f"the scales of a row are no multiple of {CODE_SCALE_ALIGN} bytes"
        return "it multiplies x in halves" if op.x_scales else unfused(op)

    def launches(self, op: MatMul, target: Target) -> list[Launch]:
        half, epilogue = op.x.element.cpp, f"blink::{op.epilogue.value}"
        shared_bytes, kernel = 0, f"gemv_kernel<{instance(half, epilogue, '1', of=op.weight)}>"
        if isinstance(form := op.weight.scale_form, GroupForm):
            held = "true" if op.k <= CODE_GEMV_HELD_STAGES * CODE_GEMV_COLUMNS else "false"
            kernel = f"code_gemv_kernel<{instance(half, epilogue, held, of=op.weight)}>"
            shared_bytes = CODE_GEMV_BYTES
            if form.codes is Codes.INT4:  # whose zeros the sums of x are multiplied by
                sums = ceil_div(op.k, CODE_GEMV_COLUMNS) * CODE_CHUNKS * CODE_GEMV_SUM_BYTES
                shared_bytes = CODE_GEMV_INTEGER_BYTES + sums
        tiles = ceil_div(op.n, 8 if op.epilogue is Epilogue.GATED else 16)
        grid = (min(tiles, GEMV_BLOCKS * target.blocks), 1, 1)
        return [
            Launch(
                kernel,
                grid,
                (GEMV_THREADS, 1, 1),
                (weight_operand(op.weight), op.x, op.out, op.m, op.k, op.n),
                shared_bytes=shared_bytes,
            ),
        ]


def row_bytes(matrix: Matrix) -> int:
    return matrix.columns * matrix.element.n_bytes


def unfused(op: MatMul) -> str | None:
    """Why a family that fuses nothing does not serve: None if nothing is fused."""
    if op.norm or op.takes or op.leaves:
        return "it has no norm"
    return "it has no router" if op.router else None


def plain(op: MatMul) -> str | None:
    """The same of a family that multiplies halves alone."""
    return unfused(op) or half_only(op.weight)
