"""Rounds matrices to fp8 on the GPU while they are loaded, with a scale for each row."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from gpu_backend.arithmetic import ceil_div
from gpu_backend.cuda.driver import Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.element import Element
from gpu_backend.engines.native.kernels import Kernels
from gpu_backend.kernel_abi.fp8 import FP8_GROUP

STAGED_BYTES = 32 << 20
MOST_THREADS = 256


def quantizer_kernel(dtype: str) -> str:
    """The instance for a checkpoint's type: "bfloat16", "float16" or "float32"."""
    element = next(element for element in Element if element.dtype == dtype)
    return f"quantize_kernel<{element.cpp}, blink::kScaleByRow>"


class Quantizer:
    """Stages rows in GPU memory and launches the kernel over them (kernels/ops/quantize.h)."""

    def __init__(self, memory: DeviceMemory, stream: Stream, kernels: Kernels, dtype: str) -> None:
        """`memory` owns the staging buffer, of STAGED_BYTES; `dtype` is that of the rows."""
        self._memory, self._stream = memory, stream
        self._kernel = kernels[quantizer_kernel(dtype)]
        self._staged = memory.allocate(STAGED_BYTES)

    def write(self, values: NDArray[Any], elements: int, scales: int) -> None:
        """`values` [rows][columns] as fp8 to the address `elements`, and [rows] scales to `scales`. Returns
        when that is done."""
        rows, columns = values.shape
        threads = 32 * min(MOST_THREADS // 32, ceil_div(columns, 32 * FP8_GROUP))
        step = STAGED_BYTES // (columns * values.itemsize)
        for first in range(0, rows, step):
            part = values[first : first + step]
            self._memory.write(self._staged, part.data)
            to = (elements + first * columns, scales + 4 * first)
            grid, block = (len(part), 1, 1), (threads, 1, 1)
            self._kernel.launch(grid, block, self._stream, self._staged, *to, columns, rows)
            self._stream.synchronize()
