"""Quantisation of activations to fp8, for matmuls of many rows with weights in fp8
(kernels/ops/quantize.h)."""

from __future__ import annotations

from gpu_backend.arithmetic import ceil_div
from gpu_backend.cuda.driver import Dim
from gpu_backend.element import Element
from gpu_backend.kernel_abi.fp8 import FP8_GROUP
from gpu_backend.kernel_abi.quantize import QUANTIZE_THREADS
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.operations import Quantize
from gpu_backend.ops.weights import SCALE_FORMS

STRIDE_GRAIN = 4  # scales of neighbouring rows of x that bulk copies bring, 16 bytes


def quantize_for(weight: Matrix, x: Buffer) -> Quantize:
    """What a matmul of many rows with this weight in fp8 needs of x. Its buffers are those of all such
    matmuls: each is read before the next is written."""
    form = weight.scale_form
    assert form is not None
    scales = 1 if form is ScaleForm.ROW else form.shape(1, x.columns)[1]
    stride = STRIDE_GRAIN * ceil_div(x.rows, STRIDE_GRAIN)
    out = Buffer("x_fp8", x.rows, x.columns, Element.FP8)
    return Quantize(x, out, Buffer("x_scales", scales, stride, Element.FP32), form)


def group_block(columns: int) -> Dim:
    """Threads of a row, each of which has one group of columns, or several."""
    return (min(QUANTIZE_THREADS, 32 * ceil_div(columns, 32 * FP8_GROUP)), 1, 1)


def fits_block(columns: int) -> bool:
    """Whether a block has a thread for each group of columns, as the norm that is quantised needs it."""
    return columns <= FP8_GROUP * QUANTIZE_THREADS


class QuantizeKernel:
    name = "quantize"

    def suits(self, op: Quantize, target: Target) -> str | None:
        return (
            None if op.x.columns % FP8_GROUP == 0 else f"{op.x.columns} columns, no multiple of {FP8_GROUP}"
        )

    def launches(self, op: Quantize, target: Target) -> list[Launch]:
        operands = (op.x, op.out, op.scales, op.x.columns, op.scales.columns)
        kernel = f"quantize_kernel<{op.x.element.cpp}, {SCALE_FORMS[op.form]}>"
        return [Launch(kernel, (op.x.rows, 1, 1), group_block(op.x.columns), operands)]
