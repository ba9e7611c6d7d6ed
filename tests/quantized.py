"""Operands in fp8 and four bits as kernels take them, made by numpy, and the values that they stand for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_backend.arithmetic import ceil_div
from gpu_backend.models import fourbit, fp8
from gpu_backend.models.half import rounded
from gpu_backend.models.quantization import SCALE_BLOCK, GroupForm, ScaleForm
from gpu_backend.ops.quantize import STRIDE_GRAIN

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
LEAST_MOST = np.float32(2.0**-100)  # kLeastMost of kernels/ops/quantize.h


@dataclass(frozen=True)
class Operand:
    """A quantised matrix: elements in the order of memory, scales as the kernel takes them, its values."""

    elements: Bytes
    scales: NDArray[Any]
    values: Floats


def weight(values: Floats, form: ScaleForm) -> Operand:
    elements, scales = fp8.quantize(values, form)
    return Operand(fp8.in_register_order(elements), scales, fp8.dequantized(elements, scales))


def codes(values: Floats, form: GroupForm, half: str) -> Operand:
    """Of values [rows][columns], with scales that `half` ("bfloat16" or "float16") holds, as they are stored;
    what they stand for is not rounded."""
    part = fourbit.quantize(values, form, half)
    part = replace(part, scales=rounded(part.scales, half))
    return Operand(fourbit.packed(part.codes, form.codes), fourbit.units(part, form, half), part.values())


def activations(x: Floats, form: ScaleForm) -> Operand:
    """What kernels/ops/quantize.h makes of x [rows][k], to the last bit; scales [1 or blocks][stride], with
    NaNs behind those of the rows."""
    rows, k = x.shape
    width = k if form is ScaleForm.ROW else SCALE_BLOCK
    blocks = ceil_div(k, width)
    parts = np.zeros((rows, blocks * width), np.float32)
    parts[:, :k] = x
    parts = parts.reshape(rows, blocks, width)
    most = np.fmax.reduce(np.abs(parts), axis=2, initial=0)
    scales = np.where(most > 0, np.maximum(most, LEAST_MOST) / np.float32(fp8.LARGEST), np.float32(1))
    with np.errstate(invalid="ignore"):
        scaled = parts * (np.float32(1) / scales)[:, :, None]
        elements = fp8.to_fp8(scaled.reshape(rows, -1)[:, :k])
        values = fp8.from_fp8(elements) * scales.repeat(width, axis=1)[:, :k]
    there = np.full((blocks, STRIDE_GRAIN * ceil_div(rows, STRIDE_GRAIN)), np.nan, np.float32)
    there[:, :rows] = scales.T
    return Operand(fp8.in_register_order(elements), there, values)
