"""Random weights of four bits, for benchmarks of a model's shape.

To draw each of the 115 thousand million codes of a model on the host would take longer than what is
measured with them. So some megabytes of codes and of scales are drawn once, and a matrix is filled with
pieces of them, each of which begins at another place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.models.fourbit import E2M1, MIDDLE, Grouped, packed, unit_columns, units
from gpu_backend.models.quantization import CODE_GRAIN, Codes, GroupForm
from gpu_backend.ops.matrix import Matrix

ROWS, COLUMNS = 4096, 8192  # of what is drawn once
LINE_BYTES = 128  # pieces of codes begin at multiples of it


class RandomCodes:
    """Fills matrices of codes. `half`: "bfloat16" or "float16", in which kernels multiply."""

    def __init__(self, memory: DeviceMemory, half: str, seed: int) -> None:
        self._memory, self._half = memory, half
        self._rng = np.random.default_rng(seed)
        self._pools: dict[tuple[GroupForm, float], tuple[NDArray[np.uint8], NDArray[np.uint8]]] = {}

    def fill(self, matrix: Matrix, form: GroupForm, std: float) -> None:
        """With values of mean 0 and of about this standard deviation."""
        assert matrix.scales is not None
        if (form, std) not in self._pools:
            self._pools[form, std] = self._drawn(form, std)
        codes, scales = self._pools[form, std]
        n_elements = matrix.rows * matrix.columns
        unit_bytes = scales.size * unit_columns(form) // (ROWS * COLUMNS)
        self._write(matrix.address, n_elements // 2, codes, LINE_BYTES)
        self._write(matrix.scales.address, n_elements // unit_columns(form) * unit_bytes, scales, unit_bytes)

    def _drawn(self, form: GroupForm, std: float) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The bytes of codes and of scales of a matrix of ROWS x COLUMNS, as they lie in memory."""
        made = random_codes(self._rng, ROWS, COLUMNS, form, std)
        scales = np.ascontiguousarray(units(made, form, self._half))
        return packed(made.codes, form.codes).reshape(-1), scales.reshape(-1).view(np.uint8)

    def _write(self, address: int, n_bytes: int, pool: NDArray[np.uint8], grain: int) -> None:
        most = pool.size // 2 // grain * grain
        for first in range(0, n_bytes, most):
            n = min(most, n_bytes - first)
            begin = int(self._rng.integers((pool.size - n) // grain + 1)) * grain
            self._memory.write(address + first, pool[begin : begin + n].data)


def random_codes(rng: np.random.Generator, rows: int, columns: int, form: GroupForm, std: float) -> Grouped:
    """Codes of which each is as likely, with scales by which their values have mean 0 and `std`, about."""
    codes = rng.integers(0, 16, (rows, columns), np.uint8)
    zeros = np.full(form.shape(rows, columns), MIDDLE, np.float32) if form.codes is Codes.INT4 else None
    usual = std / (E2M1.std() if zeros is None else np.arange(16).std())
    scales = rng.uniform(0.8 * usual, 1.2 * usual, form.shape(rows, columns)).astype(np.float32)
    if zeros is None and form.group == CODE_GRAIN:  # powers of two
        scales = np.full_like(scales, 2.0 ** np.rint(np.log2(usual)))
    return Grouped(codes, scales, zeros)
