"""Rounds matrices to fp8 on the GPU while they are loaded, with scales by row or by block."""

from __future__ import annotations

import math
from typing import Any

from numpy.typing import NDArray

from gpu_backend.cuda.driver import Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.element import Element
from gpu_backend.engines.native.kernels import Kernels
from gpu_backend.kernel_abi.fp8 import SCALE_BLOCK
from gpu_backend.kernel_abi.quantize import QUANTIZE_HELD
from gpu_backend.kernel_abi.quantize_weight import WEIGHT_THREADS
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.ops.quantize import row_kernel, row_threads

STAGED_BYTES = 32 << 20


def quantizer_kernel(dtype: str, form: ScaleForm) -> str:
    """The instance for a checkpoint's type: "bfloat16", "float16" or "float32"."""
    element = next(element for element in Element if element.dtype == dtype)
    if form is ScaleForm.ROW:
        return row_kernel(element, form, QUANTIZE_HELD)
    return f"quantize_weight_kernel<{element.cpp}>"


class Quantizer:
    """Stages rows in GPU memory and launches the kernels over them (kernels/ops/quantize.h and
    quantize_weight.h)."""

    def __init__(self, memory: DeviceMemory, stream: Stream, kernels: Kernels, dtype: str) -> None:
        """`memory` owns the staging buffer, of STAGED_BYTES; `dtype` is that of the rows."""
        self._memory, self._stream, self._kernels = memory, stream, kernels
        self._dtype = dtype
        self._staged = memory.allocate(STAGED_BYTES)

    def write(self, values: NDArray[Any], form: ScaleForm, elements: int, scales: int) -> None:
        """`values` [rows][columns] as fp8 to the address `elements`, and their scales of `form` to `scales`.
        Returns when that is done."""
        kernel = self._kernels[quantizer_kernel(self._dtype, form)]
        rows, columns = values.shape
        step = STAGED_BYTES // (columns * values.itemsize) // SCALE_BLOCK * SCALE_BLOCK
        for first in range(0, rows, step):
            part = values[first : first + step]
            self._memory.write(self._staged, part.data)
            behind = Element.FP32.n_bytes * math.prod(form.shape(first, columns))  # whole blocks come before
            to = (elements + first * columns, scales + behind)
            if form is ScaleForm.ROW:
                grid, block, sizes = (len(part), 1, 1), row_threads(columns, QUANTIZE_HELD), (columns, rows)
            else:
                across, down = reversed(form.shape(len(part), columns))
                grid, block, sizes = (across, down, 1), (WEIGHT_THREADS, 1, 1), (len(part), columns)
            kernel.launch(grid, block, self._stream, self._staged, *to, *sizes)
            self._stream.synchronize()
