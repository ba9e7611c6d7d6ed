"""Tensor maps: how bulk copies see a matrix (CUDA driver API, "Tensor Map Object Management")."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gpu_backend.cuda.driver import api, call

HALF_BYTES = 2


def tensor_map(
    address: int,
    shape: Sequence[int],
    box: Sequence[int],
    strides: Sequence[int] | None = None,
    swizzle: bool = False,
) -> bytes:
    """A CUtensorMap of a tensor of halves, whose copies bring boxes. The slowest dimension comes first.

    `strides`: elements between neighbours in all dimensions but the last, which is contiguous; without them
    the tensor is dense. `swizzle`: boxes whose rows have 128 bytes are laid out as wgmma reads them. Where
    the map lies in device memory it must be 64-byte aligned. Raises CudaError.
    """
    driver = api()
    if strides is None:
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape) - 1)]
    swizzles = driver.CUtensorMapSwizzle
    encoded = call(
        "cuTensorMapEncodeTiled",
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT16,  # bits are moved, not numbers
        len(shape),
        address,
        [driver.cuuint64_t(n) for n in reversed(shape)],
        [driver.cuuint64_t(HALF_BYTES * n) for n in reversed(strides)],
        [driver.cuuint32_t(n) for n in reversed(box)],
        [driver.cuuint32_t(1)] * len(shape),
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        swizzles.CU_TENSOR_MAP_SWIZZLE_128B if swizzle else swizzles.CU_TENSOR_MAP_SWIZZLE_NONE,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,  # 256: the decoder takes 6 % longer
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    return np.array([int(word) for word in encoded.opaque], np.uint64).tobytes()
