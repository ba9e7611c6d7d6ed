"""How weights are stored in fp8: which modules of a checkpoint, and what their elements are multiplied by.

gpu_backend/models/quantization_config.py reads it from a model's files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from gpu_backend.kernel_abi.fp8 import SCALE_BLOCK

LINEAR = "Linear"  # the target that stands for every linear layer


class ScaleForm(Enum):
    """Which elements of an fp8 matrix share a scale."""

    ROW = "by row"  # scales [rows][1]: value = element * scales[row][0]
    BLOCK = "by block"  # [ceil(rows/128)][ceil(columns/128)]: value = element * scales[row/128][column/128]

    def shape(self, rows: int, columns: int) -> tuple[int, int]:
        """That of the scales of a matrix of this shape."""
        if self is ScaleForm.ROW:
            return rows, 1
        return -(-rows // SCALE_BLOCK), -(-columns // SCALE_BLOCK)


QUANTIZATIONS = {"fp8": ScaleForm.ROW, "fp8-block": ScaleForm.BLOCK}  # as --quantization calls them


class StoredScales(Enum):
    """What a checkpoint's scales of an fp8 tensor are for; the value is compressed-tensors' name of it."""

    TENSOR = "tensor"  # one number
    CHANNEL = "channel"  # one for each row
    BLOCK = "block"  # one for each 128 x 128 elements

    @property
    def loaded(self) -> ScaleForm:
        """The form in which the engine has them: the scale of a tensor becomes that of each of its rows."""
        return ScaleForm.BLOCK if self is StoredScales.BLOCK else ScaleForm.ROW

    def shape(self, rows: int, columns: int) -> tuple[int, ...]:
        """That of the scales of a tensor of this shape, without dimensions of 1."""
        sizes = (1, 1) if self is StoredScales.TENSOR else self.loaded.shape(rows, columns)
        return tuple(size for size in sizes if size > 1)


@dataclass(frozen=True)
class Target:
    """The modules that `patterns` name have these scales. A pattern is LINEAR, or a regular expression for
    the beginning of a module's name."""

    patterns: tuple[str, ...]
    scales: StoredScales


@dataclass(frozen=True)
class Quantization:
    """What a checkpoint says of itself.

    `method` is config.json's quant_method. The linear layers of the first of `targets` that fits are fp8,
    but for those that fit one of `ignored`, regular expressions. `kv_cache`: it was made to be served with
    keys and values in fp8.
    """

    method: str
    targets: tuple[Target, ...]
    ignored: tuple[str, ...]
    kv_cache: bool

    def scales_of(self, module: str) -> StoredScales | None:
        """Of a linear layer; None where it is not quantized."""
        if any(re.match(pattern, module) for pattern in self.ignored):
            return None
        for target in self.targets:
            if any(pattern == LINEAR or re.match(pattern, module) for pattern in target.patterns):
                return target.scales
        return None
