"""Rounding to the half types, which numpy has only one of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_backend.models.fp8 import FP8, from_fp8


def to_float32(tensor: NDArray[Any], dtype: str) -> NDArray[np.float32]:
    """The values of a tensor; bfloat16 is given as its bits, uint16, and float8_e4m3fn as bytes."""
    if dtype == FP8:
        return from_fp8(tensor)
    if dtype == "bfloat16":
        return (tensor.astype(np.uint32) << 16).view(np.float32)
    return tensor.astype(np.float32, copy=False)


def half_bits(tensor: NDArray[Any], dtype: str, wanted: str) -> NDArray[np.uint16]:
    """The tensor's elements as bits of `wanted` ("bfloat16" or "float16"), rounded to nearest even."""
    if dtype == wanted:
        return np.ascontiguousarray(tensor).view(np.uint16)
    values = np.ascontiguousarray(to_float32(tensor, dtype))
    if wanted == "float16":
        return values.astype(np.float16).view(np.uint16)
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def rounded(values: NDArray[np.float32], dtype: str) -> NDArray[np.float32]:
    """The nearest numbers of a half type ("bfloat16" or "float16"), in fp32."""
    bits = half_bits(values, "float32", dtype)
    return to_float32(bits.view(np.float16) if dtype == "float16" else bits, dtype)


def round_to(value: float, dtype: str) -> float:
    """The nearest number of a type: "bfloat16", "float16" or "float32"."""
    single = np.array([value], np.float32)
    return float(single[0] if dtype == "float32" else rounded(single, dtype)[0])
