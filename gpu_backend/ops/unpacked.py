"""Matmuls of many rows with weights in four bits: the matrix is unpacked to halves
(kernels/ops/gemm/unpack.h), and multiplied by the kernels for those.

Unpacking writes four bytes for each that it reads, and the matmul reads them again. Beside the multiplication
of 8,192 rows that is little, beside that of 100 it is most of the time: docs/benchmarks/four-bits.md has the
numbers. All matrices of a step are unpacked to the same buffer, one after the other.
"""

from __future__ import annotations

from dataclasses import replace

from gpu_backend.arithmetic import ceil_div
from gpu_backend.element import Element
from gpu_backend.kernel_abi.unpack import UNPACK_COLUMNS, UNPACK_THREADS
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch, Work
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.moe_parts import Choose
from gpu_backend.ops.operations import MatMul
from gpu_backend.ops.weights import instance, weight_operand

BLOCKS = 16  # of a multiprocessor, to each of which a thread comes several times where a matrix is large


def unpacked(weight: Matrix, half: Element, target: Target) -> tuple[Launch, Matrix]:
    """What unpacks a matrix of codes, and the matrix of halves that it becomes in a buffer."""
    scratch = Buffer("unpacked", weight.rows, weight.columns, half)
    threads = weight.rows * weight.columns // UNPACK_COLUMNS
    grid = (min(ceil_div(threads, UNPACK_THREADS), BLOCKS * target.blocks), 1, 1)
    launch = Launch(
        f"unpack_kernel<{instance(half.cpp, of=weight)}>",
        grid,
        (UNPACK_THREADS, 1, 1),
        (weight_operand(weight), scratch, weight.rows, weight.columns),
    )
    return launch, Matrix(weight.rows, weight.columns, half, buffer=scratch.name)


def behind(work: Work) -> Work:
    """What reads an unpacked matrix, and must not do so before it is there."""
    return replace(work, overlap=False) if isinstance(work, Launch) else work


class UnpackedGemm:
    name = "unpacked_gemm"

    def __init__(self, choose: Choose) -> None:
        self._choose = choose

    def suits(self, op: MatMul, target: Target) -> str | None:
        return target.beyond_hopper if op.weight.groups else "its weights are codes of four bits"

    def launches(self, op: MatMul, target: Target) -> list[Work]:
        unpack, weight = unpacked(op.weight, op.x.element, target)
        first, *rest = self._choose(replace(op, weight=weight), target).launches
        return [unpack, behind(first), *rest]
