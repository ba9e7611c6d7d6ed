"""Tensor maps: how bulk copies see a matrix (CUDA driver API, "Tensor Map Object Management")."""

from __future__ import annotations

import numpy as np

from gpu_backend.cuda.driver import api, call

Shape = tuple[int, int, int]


def tensor_map(address: int, shape: Shape, box: Shape, swizzle: bool = False) -> bytes:
    """A CUtensorMap of a dense tensor of halves, whose copies bring boxes. The slowest dimension comes first.

    `swizzle` lays a box's rows, of 64 halves, out as tensor cores read them (kernels/ops/wgmma.h). Where the
    map lies in device memory it must be 64-byte aligned. Raises CudaError.
    """
    driver = api()
    dims = [driver.cuuint64_t(n) for n in reversed(shape)]
    strides = [driver.cuuint64_t(2 * n) for n in (shape[2], shape[1] * shape[2])]
    boxes, steps = [driver.cuuint32_t(n) for n in reversed(box)], [driver.cuuint32_t(1)] * 3
    swizzles = driver.CUtensorMapSwizzle
    encoded = call(
        "cuTensorMapEncodeTiled",
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT16,  # bits are moved, not numbers
        3,
        address,
        dims,
        strides,
        boxes,
        steps,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        swizzles.CU_TENSOR_MAP_SWIZZLE_128B if swizzle else swizzles.CU_TENSOR_MAP_SWIZZLE_NONE,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,  # 256: the decoder takes 6 % longer
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    return np.array([int(word) for word in encoded.opaque], np.uint64).tobytes()
