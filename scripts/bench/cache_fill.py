"""Random keys and values for a cache in GPU memory: nothing is timed on zeros."""

from __future__ import annotations

import numpy as np

from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.element import Element
from gpu_backend.models.fp8 import to_fp8
from gpu_backend.models.half import half_bits

FILL_BYTES = 32 << 20  # of random elements, over and over


def fill_cache(
    memory: DeviceMemory, address: int, n_bytes: int, element: Element, scale: float = 1.0
) -> None:
    """With normal numbers; `scale`: of a cache in fp8."""
    values = np.random.default_rng(0).standard_normal(FILL_BYTES // element.n_bytes, np.float32)
    fp8 = element is Element.FP8
    bits = to_fp8(values / np.float32(scale)) if fp8 else half_bits(values, "float32", element.dtype)
    data = memoryview(np.ascontiguousarray(bits)).cast("B")
    for at in range(0, n_bytes, FILL_BYTES):
        memory.write(address + at, data[: min(FILL_BYTES, n_bytes - at)])
