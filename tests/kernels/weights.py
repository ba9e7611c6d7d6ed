"""Weights as kernels take them, of halves, of fp8 and of four bits, and their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from reference_ops import Floats

from gpu_backend.models.fourbit import Grouped, packed, unit_columns, units
from gpu_backend.models.fp8 import dequantized, in_register_order, quantize
from gpu_backend.models.half import half_bits
from gpu_backend.models.quantization import Codes, Form, GroupForm, ScaleForm

INT4, FP4_32, FP4_16 = GroupForm(Codes.INT4, 64), GroupForm(Codes.E2M1, 32), GroupForm(Codes.E2M1, 16)
FORMS: list[Form | None] = [ScaleForm.ROW, ScaleForm.BLOCK, None, INT4, FP4_32, FP4_16]  # by numbers in C++
CODES = [INT4, FP4_32, FP4_16]
SHIFT_BITS = 8  # kFormBits of emulator/weights.h


@dataclass
class Weights:
    """`stored` [...][columns] halves or fp8, or [...][columns / 2] bytes of codes, `scales` of all its rows,
    `values` [...][columns], and before these are rounded to halves `exact` ones."""

    stored: NDArray[Any]
    scales: NDArray[Any] | None
    values: Floats
    form: int
    exact: Floats | None = None

    @property
    def pointers(self) -> tuple[NDArray[Any], NDArray[Any] | None]:
        return self.stored, self.scales


def weights(halves: NDArray[np.uint16], form: Form | None = None) -> Weights:
    """Of halves [...][columns], which are rounded if there is a form. Rows, blocks of 128 and groups differ
    in size, so that each has a scale of its own."""
    values = (halves.astype(np.uint32) << 16).view(np.float32)
    if form is None:
        return Weights(halves, None, values, FORMS.index(None))
    if isinstance(form, GroupForm):
        return _codes(values, form)
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


def _codes(like: Floats, form: GroupForm) -> Weights:
    """Any codes, zeros and scales, of about the size of `like`; their values are rounded to bfloat16."""
    rows, columns = like.size // like.shape[-1], like.shape[-1]
    rng = np.random.default_rng(like.size)
    codes = rng.integers(0, 16, (rows, columns), np.uint8)
    shape = form.shape(rows, columns)
    size, zeros = like.std() / 4, None
    scales = (size * (0.5 + rng.random(shape))).astype(np.float32)
    if form.codes is Codes.INT4:
        zeros = rng.integers(0, 17, shape).astype(np.float32)
    elif form.group == 32:
        scales = np.exp2(np.rint(np.log2(scales))).astype(np.float32)
    scales = (half_bits(scales, "float32", "bfloat16").astype(np.uint32) << 16).view(np.float32)
    part = Grouped(codes, scales, zeros)
    values = (half_bits(part.values(), "float32", "bfloat16").astype(np.uint32) << 16).view(np.float32)
    shift = unit_columns(form).bit_length() - 1
    stored = packed(codes, form.codes).reshape(*like.shape[:-1], columns // 2)
    kind = next(i for i, one in enumerate(FORMS) if isinstance(one, GroupForm) and _alike(one, form))
    return Weights(
        stored,
        units(part, form, "bfloat16"),
        values.reshape(like.shape),
        kind | shift << SHIFT_BITS,
        part.values().reshape(like.shape),
    )


def _alike(one: GroupForm, other: GroupForm) -> bool:
    """Whether both are one form in C++, where the size of a group of integers is an argument."""
    return one.codes is other.codes and (one.codes is Codes.INT4 or one.group == other.group)
