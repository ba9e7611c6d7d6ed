"""Matmuls of given sizes."""

from __future__ import annotations

from gpu_backend.element import Element
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.operations import Epilogue, MatMul, Role

BF16 = Element.BF16


def matmul(role: Role, m: int, k: int, n: int, epilogue: Epilogue, element: Element = BF16) -> MatMul:
    """x [m][k] times a weight [n][k], or [2][n][k]."""
    fp32 = epilogue in (Epilogue.ADD, Epilogue.STORE_FP32)
    out = Buffer("out", m, n, Element.FP32 if fp32 else element)
    rows = 2 * n if epilogue is Epilogue.GATED else n
    return MatMul(role, Matrix(rows, k, element), Buffer("x", m, k, element), out, epilogue)
