"""Codes of four bits in numpy, which has no such type: a code is a byte, from 0 to 15.

The order of codes in GPU memory is that of `packed`, which gpu_backend.ops.matrix.Matrix describes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu_backend.models.half import half_bits, rounded
from gpu_backend.models.quantization import CODE_GRAIN, Codes, GroupForm

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
MIDDLE = 8  # the zero of integers that have none of their own
MOST_E2M1 = 6.0
# By the type of halves: the number to whose pattern in bits a code is added (kernels/primitives/codes.h); the
# exponent of what makes a scale of numbers a factor; and the exponents of powers of two, with the bias of
# 127, whose factors and whose products with numbers it holds.
PATTERNS = {"bfloat16": 128, "float16": 1024}
FACTORS = {"bfloat16": 126, "float16": 14}
EXPONENTS = {"bfloat16": (0, 128), "float16": (113, 128)}
INFINITE = {"bfloat16": 0x7F80, "float16": 0x7C00}
TOO_LARGE = "scales of 4 and more, by which numbers of four bits (e2m1) are not multiplied"
E2M1: Floats = np.array(
    [sign * size for sign in (1, -1) for size in (0, 0.5, 1, 1.5, 2, 3, 4, 6)], np.float32
)
_BETWEEN: Floats = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5], np.float32)  # neighbouring numbers
# Of 32 columns: which codes a half of a word has, [word][half][pair], and where in it the bits of a code are,
# [pair]: of integers the lowest one, of numbers the lowest one of their size, and the sign's.
ORDER: NDArray[np.intp] = np.array(
    [8 * pair + 2 * word + one for word in range(4) for one in (0, 1) for pair in range(4)], np.intp
)
INTEGER_BITS = (0, 4, 8, 12)
SIZE_BITS, SIGN_BITS = (6, 3, 0, 9), (15, 12, 14, 13)


@dataclass(frozen=True)
class Grouped:
    """A matrix of codes, or some of its rows: codes [rows][columns], scales and, of Codes.INT4, zeros
    [rows][groups], of groups of equal size."""

    codes: Bytes
    scales: Floats
    zeros: Floats | None

    def rows(self, order: NDArray[np.intp]) -> Grouped:
        """The same with its rows in another order."""
        zeros = None if self.zeros is None else self.zeros[order]
        return Grouped(self.codes[order], self.scales[order], zeros)

    def values(self) -> Floats:
        """What the codes stand for, in fp32."""
        rows, columns = self.codes.shape
        groups = self.codes.reshape(rows, self.scales.shape[1], -1)
        numbers = E2M1[groups] if self.zeros is None else groups - self.zeros[:, :, None]
        numbers *= self.scales[:, :, None]
        return numbers.reshape(rows, columns)

    def in_groups_of(self, size: int) -> Grouped:
        """The same with smaller groups, into which each of these is divided."""
        times = self.codes.shape[1] // self.scales.shape[1] // size
        zeros = None if self.zeros is None else self.zeros.repeat(times, axis=1)
        return Grouped(self.codes, self.scales.repeat(times, axis=1), zeros)


def quantize(values: Floats, form: GroupForm, half: str = "bfloat16") -> Grouped:
    """The nearest codes, with the least scales of which no code lies beyond the last; integers are symmetric,
    and the scales of numbers powers of two, as MXFP4 has them, not under the least that `half` holds; `units`
    refuses those that are too large."""
    rows, columns = values.shape
    groups = values.reshape(rows, -1, form.group)
    most = np.abs(groups).max(axis=2)
    if form.codes is Codes.INT4:
        scales = np.where(most > 0, most / np.float32(MIDDLE - 1), np.float32(1))
        integers = np.rint(groups / scales[:, :, None]) + MIDDLE
        zeros = np.full_like(scales, MIDDLE)
        return Grouped(integers.astype(np.uint8).reshape(rows, columns), scales, zeros)
    exponent = np.ceil(np.log2(np.where(most > 0, most, 1) / np.float32(MOST_E2M1)))
    scales = np.exp2(np.maximum(exponent, EXPONENTS[half][0] - 127)).astype(np.float32)
    sizes = np.abs(groups) / scales[:, :, None]
    codes: Bytes = np.searchsorted(_BETWEEN, sizes).astype(np.uint8)
    codes[groups < 0] |= 8
    return Grouped(codes.reshape(rows, columns), scales, None)


def units(part: Grouped, form: GroupForm, half: str) -> NDArray[np.uint32] | Bytes:
    """Scales, and zeros, as kernels/primitives/codes.h has them: [rows][columns / unit_columns(form)].

    `half`: "bfloat16" or "float16", in which kernels multiply. Raises ValueError where it does not hold them,
    or the factors that kernels multiply numbers by in their place.
    """
    if form.codes is Codes.E2M1 and form.group == CODE_GRAIN:
        exponents = part.scales.view(np.uint32) >> 23 & 0xFF
        least, most = EXPONENTS[half]
        if (exponents < least).any():
            raise ValueError(f"scales that are beyond what {half} holds")
        if (exponents > most).any():
            raise ValueError(TOO_LARGE)
        return (exponents + FACTORS["bfloat16"]).astype(np.uint8)
    if part.zeros is None:
        with np.errstate(over="ignore"):
            factors = half_bits(np.ldexp(rounded(part.scales, half), FACTORS[half]), "float32", half)
        if (factors & 0x7FFF >= INFINITE[half]).any():
            raise ValueError(TOO_LARGE)
        low, high = factors[:, 0::2], factors[:, 1::2]
    else:
        halves = half_bits(part.scales, "float32", half)
        if (halves & 0x7FFF >= INFINITE[half]).any():
            raise ValueError(f"scales that are beyond what {half} holds")
        added = half_bits(-(part.zeros + PATTERNS[half]).astype(np.float32), "float32", half)
        low, high = halves, added
    words: NDArray[np.uint32] = high.astype(np.uint32)
    words <<= 16
    words |= low
    return words


def unit_columns(form: GroupForm) -> int:
    """Columns of what has one word or byte of scales."""
    return form.group if form.codes is Codes.INT4 else CODE_GRAIN


def packed(codes: Bytes, kind: Codes) -> Bytes:
    """Codes [rows][columns], a multiple of CODE_GRAIN, as they lie in GPU memory, [rows][columns / 2]."""
    rows, columns = codes.shape
    ordered = codes.reshape(-1, CODE_GRAIN)[:, ORDER].reshape(-1, len(INTEGER_BITS))
    halves = np.zeros(len(ordered), np.uint16)
    for pair in range(len(INTEGER_BITS)):
        code = ordered[:, pair].astype(np.uint16)
        if kind is Codes.INT4:
            halves |= code << INTEGER_BITS[pair]
        else:
            halves |= (code & 7) << SIZE_BITS[pair] | code >> 3 << SIGN_BITS[pair]
    return halves.view(np.uint8).reshape(rows, columns // 2)
