"""Weights as kernels take them, of halves and of fp8, and their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from reference_ops import Floats

from gpu_backend.models.fp8 import dequantized, in_register_order, quantize
from gpu_backend.models.quantization import ScaleForm

FORMS = [ScaleForm.ROW, ScaleForm.BLOCK, None]  # by their numbers in C++


@dataclass
class Weights:
    """`stored` [...][columns] halves or fp8, `scales` of all its rows, `values` [...][columns]."""

    stored: NDArray[Any]
    scales: Floats | None
    values: Floats
    form: int

    @property
    def pointers(self) -> tuple[NDArray[Any], Floats | None]:
        return self.stored, self.scales


def weights(halves: NDArray[np.uint16], form: ScaleForm | None = None) -> Weights:
    """Of halves [...][columns], which are rounded to fp8 if there is a form. Rows and blocks of 128 differ in
    size, so that each has a scale of its own."""
    values = (halves.astype(np.uint32) << 16).view(np.float32)
    if form is None:
        return Weights(halves, None, values, FORMS.index(None))
    matrix = values.reshape(-1, halves.shape[-1])
    rng = np.random.default_rng(halves.size)
    if form is ScaleForm.ROW:
        size = 1 + rng.random((len(matrix), 1), np.float32)
    else:
        size = rng.integers(1, 9, form.shape(*matrix.shape)).repeat(128, axis=0).repeat(128, axis=1)
        size = size[: matrix.shape[0], : matrix.shape[1]].astype(np.float32) / 4
    elements, scales = quantize(matrix * size, form)
    return Weights(
        in_register_order(elements).reshape(halves.shape),
        scales,
        dequantized(elements, scales).reshape(halves.shape),
        FORMS.index(form),
    )
