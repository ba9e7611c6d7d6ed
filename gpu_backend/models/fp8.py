"""fp8 (e4m3) in numpy, which has no such type: its elements are bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_backend.kernel_abi.fp8 import SCALE_BLOCK
from gpu_backend.models.quantization import ScaleForm

FP8 = "float8_e4m3fn"
LARGEST = 448.0
LEAST_MOST = 2.0**-100  # of what is quantized: with less, 1 / scale might be infinite
SMALLEST_EXPONENT = -6  # of a normal number; subnormals are multiples of 2^-9
MANTISSA_BITS = 3
SIGN, NAN = 0x80, 0x7F
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


def _values() -> Floats:
    """The value of each byte."""
    code = np.arange(256)
    exponent, mantissa = (code >> MANTISSA_BITS) & 15, code & 7
    fraction = np.where(exponent == 0, mantissa, mantissa + 8)
    value = fraction * 2.0 ** (np.maximum(exponent, 1) - 7 - MANTISSA_BITS)
    value[(code & NAN) == NAN] = np.nan
    out: Floats = np.where(code & SIGN, -value, value).astype(np.float32)
    return out


VALUES = _values()


def from_fp8(elements: Bytes) -> Floats:
    """The values of elements, without a scale."""
    out: Floats = VALUES[elements]
    return out


def to_fp8(values: Floats) -> Bytes:
    """The nearest elements, to even where two are as near; beyond LARGEST that with its sign."""
    size = np.minimum(np.abs(values), np.float32(LARGEST))
    bits = size.view(np.uint32)
    dropped = 23 - MANTISSA_BITS
    rounded = (bits + ((1 << (dropped - 1)) - 1) + ((bits >> dropped) & 1)) >> dropped
    normal = rounded - ((127 - 7) << MANTISSA_BITS)
    with np.errstate(invalid="ignore"):  # of what is not a number, which has a code of its own
        subnormal = np.rint(size * np.float32(2.0 ** (MANTISSA_BITS - SMALLEST_EXPONENT))).astype(np.uint32)
    code = np.where(size < 2.0**SMALLEST_EXPONENT, subnormal, normal)
    code = np.where(np.isnan(values), NAN, code)
    out: Bytes = (code | np.where(np.signbit(values), SIGN, 0)).astype(np.uint8)
    return out


def quantize(values: Floats, form: ScaleForm) -> tuple[Bytes, Floats]:
    """Elements [rows][columns] and scales of `form` for a matrix: what shares a scale has its largest element
    become LARGEST; the scale is 1 where all are zero. As the kernel does it (kernels/ops/quantize.h)."""
    rows, columns = values.shape
    shape = form.shape(rows, columns)
    if form is ScaleForm.ROW:
        most = np.abs(values).max(axis=1, keepdims=True)
    else:
        padded = np.zeros((shape[0] * SCALE_BLOCK, shape[1] * SCALE_BLOCK), np.float32)
        padded[:rows, :columns] = np.abs(values)
        most = padded.reshape(shape[0], SCALE_BLOCK, shape[1], SCALE_BLOCK).max(axis=(1, 3))
    most = np.where(most > 0, np.maximum(most, np.float32(LEAST_MOST)), np.float32(LARGEST))
    scales = (most / np.float32(LARGEST)).astype(np.float32)
    return to_fp8(values * spread(np.float32(1) / scales, rows, columns)), scales


def spread(scales: Floats, rows: int, columns: int) -> Floats:
    """The scale of each element of a matrix, [rows][columns] or what is broadcast to it."""
    if scales.shape == ScaleForm.ROW.shape(rows, columns):
        return scales
    return scales.repeat(SCALE_BLOCK, axis=0)[:rows].repeat(SCALE_BLOCK, axis=1)[:, :columns]


def dequantized(elements: Bytes, scales: Floats) -> Floats:
    """The values of a matrix, in fp32: element times scale."""
    return from_fp8(elements) * spread(scales, *elements.shape)


def in_register_order(elements: Bytes) -> Bytes:
    """Elements [rows][columns] with the columns in the order of gpu_backend.ops.matrix.Matrix."""
    pairs: NDArray[Any] = np.ascontiguousarray(elements).view(np.uint16).reshape(-1, 8)
    out = np.empty_like(pairs)
    for q in range(4):  # columns 2q and 2q + 1, then those 8 further on
        out[:, 2 * q], out[:, 2 * q + 1] = pairs[:, q], pairs[:, 4 + q]
    return out.view(np.uint8).reshape(elements.shape)
