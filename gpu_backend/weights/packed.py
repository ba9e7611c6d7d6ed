"""Matrices of four bits as tools lay them out in tensors, read as codes [rows][columns], scales and zeros.

    AWQ       qweight [columns][rows/8], qzeros [groups][rows/8] int32; scales [groups][rows]. Of eight rows
              the nibbles of a word have, from the lowest on, 0, 2, 4, 6, 1, 3, 5 and 7
    GPTQ      qweight [columns/8][rows], qzeros [groups][rows/8] int32; scales [groups][rows]; g_idx [columns]
              int32, each column's group. A zero is stored less one, in version 2 as it is
    pack-quantized         weight_packed [rows][columns/8] int32; weight_scale [rows][groups];
                           weight_zero_point [rows/8][groups] int32, if integers are not symmetric
    nvfp4-pack-quantized   weight_packed [rows][columns/2] uint8; weight_scale [rows][groups] fp8, divided by
                           weight_global_scale
    mxfp4-pack-quantized   weight_packed [rows][columns/2] uint8; weight_scale [rows][groups] uint8, exponents
    NVFP4     weight [rows][columns/2] uint8; weight_scale [rows][groups] fp8, times weight_scale_2
    MXFP4     _blocks [.., rows][groups][16] uint8; _scales [.., rows][groups] uint8, exponents; in front of
              the rows there may be experts

The first of several codes in a byte or a word is in its lowest bits, but for AWQ's order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gpu_backend.models.fourbit import MIDDLE, Bytes, Floats, Grouped
from gpu_backend.models.fp8 import FP8, from_fp8
from gpu_backend.models.half import to_float32
from gpu_backend.models.quantization import Packing, StoredGroups
from gpu_backend.weights.safetensors import CheckpointError, Tensor

SUFFIX = ".weight"
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
IN_ORDER = tuple(range(8))
EXPONENT_BIAS = 127  # of e8m0
NO_EXPONENT = 255  # its code that is no number
FLOATS = ("bfloat16", "float16", "float32")
WORDS, CODES, EXPONENTS = ("int32",), ("uint8",), ("uint8", "float8_e8m0fnu")
# The tensor by which one knows that a module has codes, and not a weight as it is.
FIRST = {
    Packing.AWQ: ".qweight",
    Packing.GPTQ: ".qweight",
    Packing.GPTQ_V2: ".qweight",
    Packing.PACKED: ".weight_packed",
    Packing.NVFP4_PACKED: ".weight_packed",
    Packing.MXFP4_PACKED: ".weight_packed",
    Packing.NVFP4: ".weight",
    Packing.MXFP4: "_blocks",
}


class Tensors(Protocol):
    """What is asked of gpu_backend.weights.checkpoint.Checkpoint."""

    def __contains__(self, name: str) -> bool: ...

    def entry(self, name: str) -> Tensor: ...

    def release(self, name: str) -> None: ...


@dataclass(frozen=True)
class PackedTensor:
    """The tensors in place of `name`, a weight [rows][columns], or of experts [experts][rows][columns]."""

    tensors: Tensors
    name: str
    stored: StoredGroups
    columns: int

    @property
    def present(self) -> bool:
        """Whether the checkpoint has them: a head or a router may be stored as it is."""
        name = self._name(FIRST[self.stored.packing])
        narrow = self.stored.packing is not Packing.NVFP4 or name not in self.tensors
        return name in self.tensors and (narrow or self.tensors.entry(name).dtype in CODES)

    @property
    def shape(self) -> tuple[int, ...]:
        """[rows][columns], or [experts][rows][columns], by the tensor of codes. Raises CheckpointError."""
        found = tuple(self.tensors.entry(self._name(FIRST[self.stored.packing])).data.shape)
        if self.stored.packing is Packing.MXFP4 and len(found) > 2:
            return *found[:-2], self.columns
        if len(found) != 2:
            raise self._wrong(FIRST[self.stored.packing], f"has shape {found}, which is no matrix")
        if self.stored.packing is Packing.AWQ:
            return 8 * found[1], self.columns
        by_column = self.stored.packing in (Packing.GPTQ, Packing.GPTQ_V2)
        return found[1 if by_column else 0], self.columns

    @property
    def file(self) -> Path:
        """Of the codes."""
        return self.tensors.entry(self._name(FIRST[self.stored.packing])).file

    def find(self) -> None:
        """Raises CheckpointError unless all tensors are there."""
        for suffix in self._wanted():
            self.tensors.entry(self._name(suffix))

    def check(self) -> None:
        """Raises CheckpointError unless each tensor is there, of its type and shape, and the columns of a
        group are neighbours; touches headers and GPTQ's g_idx only."""
        for suffix, (dtypes, shape) in self._wanted().items():
            self._entry(suffix, dtypes, shape)
        if self.stored.packing in (Packing.GPTQ, Packing.GPTQ_V2) and self._name(".g_idx") in self.tensors:
            self._check_order()

    def parts(self) -> Iterator[Grouped]:
        """One matrix, or that of each expert; the process's memory has one at a time. Raises
        CheckpointError."""
        self.check()
        read = _READERS[self.stored.packing]
        for expert in range(self.shape[0]) if len(self.shape) == 3 else (None,):
            yield read(self, expert)
        for suffix in self._wanted():
            self.tensors.release(self._name(suffix))

    def _name(self, suffix: str) -> str:
        return self.name.removesuffix(SUFFIX) + suffix

    def _entry(self, suffix: str, dtypes: tuple[str, ...], shape: tuple[int, ...]) -> Tensor:
        name = self._name(suffix)
        entry = self.tensors.entry(name)
        if entry.dtype not in dtypes or tuple(entry.data.shape) != shape:
            raise CheckpointError(
                f"{entry.file}: '{name}' is {entry.dtype} of shape {tuple(entry.data.shape)}; config.json "
                f"asks for {' or '.join(dtypes)} of shape {shape}: {self.name} {self.stored.words}"
            )
        return entry

    def _wanted(self) -> dict[str, tuple[tuple[str, ...], tuple[int, ...]]]:
        """By the ends of their names: the types and the shape that tensors may have."""
        *front, rows, columns = self.shape
        group = self.stored.group or columns
        if columns % group or columns % 8 or rows % 8:
            raise CheckpointError(
                f"{self.file}: '{self.name}' of {rows} x {columns} elements cannot be {self.stored.words}"
            )
        groups, packing = columns // group, self.stored.packing
        scales = (rows, groups)
        if packing is Packing.AWQ:
            words = {".qweight": (WORDS, (columns, rows // 8))}
        elif packing in (Packing.GPTQ, Packing.GPTQ_V2):
            words = {".qweight": (WORDS, (columns // 8, rows))}
        if self.stored.packing in (Packing.AWQ, Packing.GPTQ, Packing.GPTQ_V2):
            zeros = {".qzeros": (WORDS, (groups, rows // 8))}
            return {**words, **zeros, ".scales": (FLOATS, (groups, rows))}
        if packing is Packing.PACKED:
            zeros = {} if self.stored.symmetric else {".weight_zero_point": (WORDS, (rows // 8, groups))}
            return {
                ".weight_packed": (WORDS, (rows, columns // 8)), ".weight_scale": (FLOATS, scales), **zeros,
            }  # fmt: skip
        if packing is Packing.MXFP4:
            blocks = (*front, rows, groups, group // 2)
            return {"_blocks": (CODES, blocks), "_scales": (EXPONENTS, (*front, *scales))}
        of_scales = EXPONENTS if packing is Packing.MXFP4_PACKED else (FP8,)
        return {FIRST[packing]: (CODES, (rows, columns // 2)), ".weight_scale": (of_scales, scales)}

    def _check_order(self) -> None:
        columns = self.shape[-1]
        name = self._name(".g_idx")
        groups = self._entry(".g_idx", WORDS, (columns,)).data
        if not np.array_equal(groups, np.arange(columns) // (self.stored.group or columns)):
            raise CheckpointError(
                f"{self.file}: '{name}' puts columns of a group apart (desc_act), which is not supported: "
                "quantize with desc_act=False, or with static_groups=True"
            )

    def data(self, suffix: str) -> NDArray[Any]:
        """The tensor's elements."""
        return self.tensors.entry(self._name(suffix)).data

    def scales(self, suffix: str) -> Floats:
        """The values of a tensor of scales, in fp32. Raises CheckpointError for what cannot be one."""
        entry = self.tensors.entry(self._name(suffix))
        values = from_fp8(entry.data) if entry.dtype == FP8 else to_float32(entry.data, entry.dtype)
        if not np.isfinite(values).all():
            raise self._wrong(suffix, "holds what is no finite number")
        return values

    def exponents(self, expert: int | None, suffix: str) -> Floats:
        """The powers of two that e8m0 stands for. Raises CheckpointError."""
        codes = self.data(suffix) if expert is None else self.data(suffix)[expert]
        if (codes == NO_EXPONENT).any():
            raise self._wrong(suffix, "holds an exponent that is no number")
        return np.ldexp(np.float32(1), codes.astype(np.int32) - EXPONENT_BIAS)

    def factor(self, suffix: str) -> np.float32:
        """The one positive number of a tensor. Raises CheckpointError."""
        values = self.scales(suffix)
        if values.size != 1 or not values.item() > 0:
            raise self._wrong(suffix, f"must be one positive number, found {values.reshape(-1)[:4].tolist()}")
        return np.float32(values.item())

    def _wrong(self, suffix: str, what: str) -> CheckpointError:
        return CheckpointError(f"{self.file}: '{self._name(suffix)}' {what}")


def nibbles(words: NDArray[Any], order: tuple[int, ...] = IN_ORDER) -> Bytes:
    """The eight codes of each 32-bit word, in its place along the last axis: code `order[i]` is in bits 4 i
    to 4 i + 3."""
    shifts = np.empty(8, np.uint32)
    shifts[list(order)] = 4 * np.arange(8, dtype=np.uint32)
    out = np.empty((*words.shape, 8), np.uint8)
    for place, shift in enumerate(shifts):
        out[..., place] = words.view(np.uint32) >> shift & 15
    return out.reshape(*words.shape[:-1], -1)


def halves_of_bytes(data: NDArray[Any]) -> Bytes:
    """The two codes of each byte, in its place along the last axis."""
    out = np.empty((*data.shape, 2), np.uint8)
    out[..., 0], out[..., 1] = data & 15, data >> 4
    return out.reshape(*data.shape[:-1], -1)


def _awq(of: PackedTensor, expert: int | None) -> Grouped:
    codes = nibbles(of.data(".qweight"), AWQ_ORDER).T
    zeros = nibbles(of.data(".qzeros"), AWQ_ORDER).T
    return _grouped(codes, of.scales(".scales").T, zeros)


def _gptq(of: PackedTensor, expert: int | None) -> Grouped:
    codes = nibbles(of.data(".qweight").T)
    zeros = nibbles(of.data(".qzeros")).T
    less = of.stored.packing is Packing.GPTQ
    return _grouped(codes, of.scales(".scales").T, zeros + np.uint8(less))


def _packed(of: PackedTensor, expert: int | None) -> Grouped:
    scales = of.scales(".weight_scale")
    if of.stored.symmetric:
        zeros: NDArray[Any] = np.full(scales.shape, MIDDLE)
    else:
        zeros = nibbles(of.data(".weight_zero_point").T).T
    return _grouped(nibbles(of.data(".weight_packed")), scales, zeros)


def _grouped(codes: Bytes, scales: Floats, zeros: NDArray[Any]) -> Grouped:
    return Grouped(np.ascontiguousarray(codes), np.ascontiguousarray(scales), zeros.astype(np.float32))


def _nvfp4_packed(of: PackedTensor, expert: int | None) -> Grouped:
    scales = of.scales(".weight_scale") / of.factor(".weight_global_scale")
    return Grouped(halves_of_bytes(of.data(".weight_packed")), scales, None)


def _mxfp4_packed(of: PackedTensor, expert: int | None) -> Grouped:
    scales = of.exponents(expert, ".weight_scale")
    return Grouped(halves_of_bytes(of.data(".weight_packed")), scales, None)


def _nvfp4(of: PackedTensor, expert: int | None) -> Grouped:
    scales = of.scales(".weight_scale") * of.factor(".weight_scale_2")
    return Grouped(halves_of_bytes(of.data(".weight")), scales, None)


def _mxfp4(of: PackedTensor, expert: int | None) -> Grouped:
    blocks = of.data("_blocks") if expert is None else of.data("_blocks")[expert]
    codes = halves_of_bytes(blocks.reshape(len(blocks), -1))
    return Grouped(codes, of.exponents(expert, "_scales"), None)


_READERS: dict[Packing, Callable[[PackedTensor, int | None], Grouped]] = {
    Packing.AWQ: _awq,
    Packing.GPTQ: _gptq,
    Packing.GPTQ_V2: _gptq,
    Packing.PACKED: _packed,
    Packing.NVFP4_PACKED: _nvfp4_packed,
    Packing.MXFP4_PACKED: _mxfp4_packed,
    Packing.NVFP4: _nvfp4,
    Packing.MXFP4: _mxfp4,
}
