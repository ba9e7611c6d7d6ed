"""How narrow weights are stored: which modules of a checkpoint, and what their elements are multiplied by.

There are two kinds. Elements in fp8 have scales by tensor, row or block. Codes of four bits have a scale for
each group of a row, and integers a zero, too. gpu_backend/models/quantization_config.py reads it from a
model's files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from gpu_backend.kernel_abi.fp8 import SCALE_BLOCK

LINEAR = "Linear"  # the target that stands for every linear layer
GROUPS = (128, 64, 32, 16)  # columns of a group as the engine has it, the largest first
INTEGER_GROUP = 32  # columns that a group of integers has at least
CODE_GRAIN = 32  # columns of a matrix of codes: a multiple of it (gpu_backend.ops.matrix.Matrix)


class ScaleForm(Enum):
    """Which elements of an fp8 matrix share a scale."""

    ROW = "by row"  # scales [rows][1]: value = element * scales[row][0]
    BLOCK = "by block"  # [ceil(rows/128)][ceil(columns/128)]: value = element * scales[row/128][column/128]

    @property
    def words(self) -> str:
        return f"fp8 ({self.value})"

    def shape(self, rows: int, columns: int) -> tuple[int, int]:
        """That of the scales of a matrix of this shape."""
        if self is ScaleForm.ROW:
            return rows, 1
        return -(-rows // SCALE_BLOCK), -(-columns // SCALE_BLOCK)


class Codes(Enum):
    """What codes of four bits stand for."""

    INT4 = "int4"  # value = (code - zero) * scale, with a zero from 0 to 16 for each group
    E2M1 = "fp4"  # value = number * scale, with the numbers of gpu_backend.models.fourbit.E2M1


@dataclass(frozen=True)
class GroupForm:
    """A matrix of codes of four bits. `group`: as many neighbouring columns of a row share a scale, one of
    GROUPS."""

    codes: Codes
    group: int

    @property
    def words(self) -> str:
        return f"{self.codes.value} (by groups of {self.group})"

    def shape(self, rows: int, columns: int) -> tuple[int, int]:
        """That of the scales of a matrix of this shape."""
        return rows, columns // self.group


Form = ScaleForm | GroupForm
QUANTIZATIONS = {"fp8": ScaleForm.ROW, "fp8-block": ScaleForm.BLOCK}
ROUNDINGS: dict[str, Form] = {  # as --quantization calls them
    **QUANTIZATIONS,
    "int4": GroupForm(Codes.INT4, 64),
    "mxfp4": GroupForm(Codes.E2M1, 32),
}


class StoredScales(Enum):
    """What a checkpoint's scales of an fp8 tensor are for; the value is compressed-tensors' name of it."""

    TENSOR = "tensor"  # one number
    CHANNEL = "channel"  # one for each row
    BLOCK = "block"  # one for each 128 x 128 elements

    @property
    def words(self) -> str:
        return f"in fp8 with scales by {self.value}"

    @property
    def form(self) -> ScaleForm:
        """The form in which the engine has them: the scale of a tensor becomes that of each of its rows."""
        return ScaleForm.BLOCK if self is StoredScales.BLOCK else ScaleForm.ROW

    def loaded(self, columns: int) -> ScaleForm:
        """The form of a matrix of so many columns as the engine has it."""
        return self.form

    def shape(self, rows: int, columns: int) -> tuple[int, ...]:
        """That of the scales of a tensor of this shape, without dimensions of 1."""
        sizes = (1, 1) if self is StoredScales.TENSOR else self.form.shape(rows, columns)
        return tuple(size for size in sizes if size > 1)


class Packing(Enum):
    """How a tool lays out codes in tensors (gpu_backend/weights/packed.py). The value names it."""

    AWQ = "AWQ"
    GPTQ = "GPTQ"  # whose zeros are stored less one
    GPTQ_V2 = "GPTQ v2"
    PACKED = "pack-quantized"  # of compressed-tensors, as the next two with "pack" in them
    NVFP4_PACKED = "nvfp4-pack-quantized"
    MXFP4_PACKED = "mxfp4-pack-quantized"
    NVFP4 = "NVFP4"  # of ModelOpt
    MXFP4 = "MXFP4"  # of gpt-oss

    @property
    def codes(self) -> Codes:
        integers = (Packing.AWQ, Packing.GPTQ, Packing.GPTQ_V2, Packing.PACKED)
        return Codes.INT4 if self in integers else Codes.E2M1


@dataclass(frozen=True)
class StoredGroups:
    """What a checkpoint's scales of a matrix of codes are for: `group` columns of a row each, or the whole
    row where it is None. `symmetric`: integers have no zeros of their own, but that in the middle."""

    packing: Packing
    group: int | None
    symmetric: bool = True

    @property
    def words(self) -> str:
        group = f"by groups of {self.group}" if self.group else "by row"
        return f"in {self.packing.value} with scales {group}"

    def loaded(self, columns: int) -> GroupForm:
        """The form of a matrix of so many columns as the engine has it: the scale of a large group becomes
        that of each of its parts."""
        size = self.group or columns
        return GroupForm(self.packing.codes, next((g for g in GROUPS if size % g == 0), GROUPS[-1]))


Stored = StoredScales | StoredGroups


@dataclass(frozen=True)
class Target:
    """The modules that `patterns` name are stored so. A pattern is LINEAR, or a regular expression for the
    beginning of a module's name."""

    patterns: tuple[str, ...]
    scales: Stored


@dataclass(frozen=True)
class Quantization:
    """What a checkpoint says of itself.

    `method` is config.json's quant_method. The linear layers of the first of `targets` that fits are narrow,
    but for those that fit one of `ignored`, regular expressions. `kv_cache`: it was made to be served with
    keys and values in fp8.
    """

    method: str
    targets: tuple[Target, ...]
    ignored: tuple[str, ...]
    kv_cache: bool

    def scales_of(self, module: str) -> Stored | None:
        """Of a linear layer; None where it is not quantized."""
        if any(re.match(pattern, module) for pattern in self.ignored):
            return None
        for target in self.targets:
            if any(pattern == LINEAR or re.match(pattern, module) for pattern in target.patterns):
                return target.scales
        return None
