"""A GEMM as cuBLAS takes it: its operands, its sizes, and where the result goes."""

from __future__ import annotations

from dataclasses import dataclass

HALF_BYTES = 2  # of bf16 and fp16
FP32_BYTES = 4


@dataclass(frozen=True)
class Gemm:
    """out[rows][n_out] of x[rows][n_in] times weight[n_out][n_in] transposed, row-major, at device addresses.

    `output`: what becomes of it, one of kernels.STREAM_OUTPUTS: "half", "float", "add" to what is in `out`
    (both fp32), or "silu", whose weight [2][n_out][n_in] has gate and up rows: half(silu(gate) * up).
    """

    weight: int
    x: int
    out: int
    rows: int
    n_in: int
    n_out: int
    output: str = "half"
