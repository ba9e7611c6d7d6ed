"""Tensor maps: how bulk copies see a matrix (CUDA driver API, "Tensor Map Object Management")."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gpu_backend.cuda.driver import api, call
from gpu_backend.cuda.product import FP32_BYTES, HALF_BYTES
from gpu_backend.kernel_abi.kv_tile import TILE_KEYS
from gpu_backend.megakernel_abi import TensorMap

TENSOR_MAP_BYTES = TensorMap.itemsize
SPANS = (64, 32, 16)  # kSpanDims of kernels/ops/attention/kv_tile.h: elements of a row that lie together


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


def cache_map(address: int, layer_bytes: int, head_dim: int) -> bytes:
    """A CUtensorMap of a layer's keys at `address` and values `layer_bytes` behind: [...][head_dim] halves.

    Copies bring TILE_KEYS neighbours of both, as kernels/ops/attention/kv_tile.h wants them. Raises
    CudaError.
    """
    span = next(span for span in SPANS if head_dim % span == 0)
    spans, elements = head_dim // span, layer_bytes // HALF_BYTES
    shape, box = (2, spans, elements // head_dim, span), (2, spans, TILE_KEYS, span)
    return tensor_map(address, shape, box, (elements, span, head_dim), swizzle=True)
