"""Quantisation of activations to fp8, for matmuls of many rows with weights in fp8
(kernels/ops/quantize.h)."""

from __future__ import annotations

from gpu_backend.arithmetic import ceil_div
from gpu_backend.cuda.driver import Dim
from gpu_backend.element import Element
from gpu_backend.kernel_abi.fp8 import FP8_GROUP
from gpu_backend.kernel_abi.quantize import QUANTIZE_HELD, QUANTIZE_THREADS
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.operations import Quantize
from gpu_backend.ops.weights import SCALE_FORMS

QUANTIZE_WARPS = 4
QUANTIZE_COLUMNS = QUANTIZE_THREADS * QUANTIZE_HELD * FP8_GROUP
STRIDE_GRAIN = 4  # scales of neighbouring rows of x that bulk copies bring, 16 bytes


def quantize_for(weight: Matrix, x: Buffer) -> Quantize:
    """What a matmul of many rows with this weight in fp8 needs of x. Its buffers are those of all such
    matmuls: each is read before the next is written."""
    form = weight.scale_form
    assert isinstance(form, ScaleForm)
    scales = 1 if form is ScaleForm.ROW else form.shape(1, x.columns)[1]
    stride = STRIDE_GRAIN * ceil_div(x.rows, STRIDE_GRAIN)
    out = Buffer("x_fp8", x.rows, x.columns, Element.FP8)
    return Quantize(x, out, Buffer("x_scales", scales, stride, Element.FP32), form)


def group_block(columns: int) -> Dim:
    """Threads of a row, one for each group of columns, of which there are so many that `fits_block`."""
    return (32 * ceil_div(columns, 32 * FP8_GROUP), 1, 1)


def row_kernel(half: Element, form: ScaleForm, held: int) -> str:
    """The instance that quantises rows of which a thread has so many groups of columns."""
    return f"quantize_kernel<{half.cpp}, {SCALE_FORMS[form]}, {held}>"


def row_threads(columns: int, held: int) -> Dim:
    """Threads of a row, each of which has up to so many groups of columns.

    Raises ValueError for a row that a block cannot hold.
    """
    threads = 32 * ceil_div(columns, 32 * FP8_GROUP * held)
    if threads > QUANTIZE_THREADS:
        most = QUANTIZE_THREADS * FP8_GROUP * held
        raise ValueError(f"a row of {columns} columns cannot be rounded to fp8 as one, it may have {most}")
    return (threads, 1, 1)


def groups_held(columns: int) -> int:
    """Those of a thread that leave a row some QUANTIZE_WARPS warps, a power of two."""
    warps = ceil_div(columns, 32 * FP8_GROUP)
    return min(QUANTIZE_HELD, 1 << (ceil_div(warps, QUANTIZE_WARPS) - 1).bit_length())


def fits_block(columns: int) -> bool:
    """Whether a block has a thread for each group of columns, as the norm that is quantised needs it."""
    return columns <= FP8_GROUP * QUANTIZE_THREADS


class QuantizeKernel:
    name = "quantize"

    def suits(self, op: Quantize, target: Target) -> str | None:
        if op.x.columns % FP8_GROUP:
            return f"{op.x.columns} columns, no multiple of {FP8_GROUP}"
        if op.x.columns > QUANTIZE_COLUMNS:
            return f"{op.x.columns} columns, more than the {QUANTIZE_COLUMNS} that a block holds"
        return None

    def launches(self, op: Quantize, target: Target) -> list[Launch]:
        operands = (op.x, op.out, op.scales, op.x.columns, op.scales.columns)
        held = groups_held(op.x.columns)
        kernel = row_kernel(op.x.element, op.form, held)
        return [Launch(kernel, (op.x.rows, 1, 1), row_threads(op.x.columns, held), operands)]
