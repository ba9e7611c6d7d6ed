"""A matmul by cuBLAS, with a kernel for silu * mul behind it. It serves any number of rows."""

from __future__ import annotations

from dataclasses import replace

from gpu_backend.arithmetic import ceil_div
from gpu_backend.ops.gemv import plain
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch, LibraryGemm, Work, row_block
from gpu_backend.ops.operations import Epilogue, MatMul

SILU_THREADS = 256
VECTOR = 8  # elements of a 16-byte access


class CublasGemm:
    name = "cublas"

    def suits(self, op: MatMul, target: Target) -> str | None:
        return plain(op)

    def launches(self, op: MatMul, target: Target) -> list[Work]:
        if op.epilogue is not Epilogue.GATED:
            return [LibraryGemm(op.weight, op.x, op.out, op.epilogue is Epilogue.ADD)]
        gate_up = replace(op.out, name="gate_up", columns=2 * op.n)
        block = row_block(op.n, SILU_THREADS)
        silu_mul = Launch(
            f"silu_mul_kernel<{op.weight.element.cpp}>",
            (op.m, ceil_div(op.n, VECTOR * block[0]), 1),
            block,
            (gate_up, op.out, op.n),
        )
        return [LibraryGemm(op.weight, op.x, gate_up), silu_mul]
