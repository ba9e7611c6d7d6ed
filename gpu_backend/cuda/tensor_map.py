"""Tensor maps: how bulk copies see a matrix (CUDA driver API, "Tensor Map Object Management")."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gpu_backend.cuda.driver import api, call
from gpu_backend.cuda.gemm import FP32_BYTES, HALF_BYTES
from gpu_backend.kernel_abi.kv_tile import TILE_KEYS
from gpu_backend.megakernel_abi import TensorMap

TENSOR_MAP_BYTES = TensorMap.itemsize
SPANS = (128, 64, 32, 16)  # kSpanBytes of kernels/ops/attention/kv_tile.h: bytes of a row that lie together
LEAST_SWIZZLE = 32  # bytes of a row: narrower ones lie as they are


def tensor_map(
    address: int,
    shape: Sequence[int],
    box: Sequence[int],
    strides: Sequence[int] | None = None,
    swizzle: bool = False,
    fp32: bool = False,
) -> bytes:
    """A CUtensorMap of a tensor of halves, or fp32, whose copies move boxes. The slowest dimension is first.

    `strides`: elements between neighbours in all dimensions but the last, which is contiguous; without them
    the tensor is dense. `swizzle`: boxes, whose rows have 128, 64 or 32 bytes, are laid out as wgmma reads
    them. Where the map lies in device memory it must be 64-byte aligned. Raises CudaError.
    """
    driver = api()
    types = driver.CUtensorMapDataType
    # Bits are moved, not numbers; of fp32 they may be added.
    element, element_bytes = (
        (types.CU_TENSOR_MAP_DATA_TYPE_FLOAT32, FP32_BYTES)
        if fp32
        else (types.CU_TENSOR_MAP_DATA_TYPE_UINT16, HALF_BYTES)
    )
    if strides is None:
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape) - 1)]
    swizzling = f"{element_bytes * box[-1]}B" if swizzle else "NONE"
    encoded = call(
        "cuTensorMapEncodeTiled",
        element,
        len(shape),
        address,
        [driver.cuuint64_t(n) for n in reversed(shape)],
        [driver.cuuint64_t(element_bytes * n) for n in reversed(strides)],
        [driver.cuuint32_t(n) for n in reversed(box)],
        [driver.cuuint32_t(1)] * len(shape),
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzling}"),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,  # 256: the decoder takes 6 % longer
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    return np.array([int(word) for word in encoded.opaque], np.uint64).tobytes()


def cache_map(address: int, layer_bytes: int, row_bytes: int) -> bytes:
    """A CUtensorMap of a layer's keys at `address` and values `layer_bytes` behind, each of `row_bytes`.

    Copies bring TILE_KEYS neighbours of both, as kernels/ops/attention/kv_tile.h wants them. Raises
    CudaError.
    """
    span_bytes = next(span for span in SPANS if row_bytes % span == 0)
    span, row, words = span_bytes // HALF_BYTES, row_bytes // HALF_BYTES, layer_bytes // HALF_BYTES
    shape, box = (2, row // span, words // row, span), (2, row // span, TILE_KEYS, span)
    return tensor_map(address, shape, box, (words, span, row), swizzle=span_bytes >= LEAST_SWIZZLE)
