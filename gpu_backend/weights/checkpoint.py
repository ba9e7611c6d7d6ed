"""A model's tensors: safetensors files, mapped and not copied.

Format: 8 bytes little-endian length n; n bytes of JSON {name: {dtype, shape, data_offsets: [begin, end)}};
the data.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_backend.kernel_abi.fp8 import SCALE_BLOCK
from gpu_backend.models.description import Model, Weight
from gpu_backend.models.fp8 import FP8, NAN, Bytes, Floats, dequantized, quantize
from gpu_backend.models.half import to_float32
from gpu_backend.models.quantization import ScaleForm, StoredScales

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
# numpy has no bfloat16 and no fp8: their tensors are views of their bits.
STORAGE = {
    "BF16": ("bfloat16", "<u2"),
    "F16": ("float16", "<f2"),
    "F32": ("float32", "<f4"),
    "F8_E4M3": (FP8, "u1"),
}
SCALE_SUFFIXES = ("_scale", "_scale_inv")  # of the tensor with an fp8 tensor's scales; both multiply
MAX_HEADER_BYTES = 100_000_000


class CheckpointError(ValueError):
    """A file is missing, damaged or holds something unexpected. Names the file and the tensor."""


@dataclass(frozen=True)
class _Entry:
    file: Path
    dtype: str
    data: NDArray[Any]
    mapped: mmap.mmap
    begin: int  # of the data in the file


class Checkpoint:
    """The tensors of `directory`: model.safetensors, or the shards of model.safetensors.index.json.

    Views keep their file mapped for as long as they live. Raises CheckpointError.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._entries: dict[str, _Entry] = {}
        for file in _files(directory):
            self._entries.update(_read_entries(file))

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def tensor(self, name: str) -> NDArray[Any]:
        """A read-only view in the tensor's shape: float16, float32, uint16 with the bits of bfloat16, or
        uint8 with those of fp8."""
        return self._entry(name).data

    def dtype(self, name: str) -> str:
        """ "bfloat16", "float16", "float32" or "float8_e4m3fn"."""
        return self._entry(name).dtype

    def float32(self, name: str) -> NDArray[np.float32]:
        """The tensor's values, converted if need be."""
        return to_float32(self.tensor(name), self.dtype(name))

    def release(self, name: str) -> None:
        """Takes the pages of a tensor that was read out of this process: a later read maps them again.

        Without it, loading would pile the whole checkpoint up as resident memory.
        """
        entry = self._entry(name)
        first = -(-entry.begin // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (entry.begin + entry.data.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if end > first:
            entry.mapped.madvise(mmap.MADV_DONTNEED, first, end - first)

    def parts(self, weight: Weight) -> Iterator[tuple[NDArray[Any], str]]:
        """What a weight is stacked from, with its dtype: its tensors, in the weight's order and with its
        offset. What is stored in fp8 comes as its values, in fp32.

        A part leaves this process's memory when the next one is asked for.
        """
        row = 0
        for name in weight.tensors:
            tensor, dtype = self.tensor(name), self.dtype(name)
            if weight.stored is not None and dtype == FP8:
                tensor, dtype = dequantized(self._elements(name), self.scales(name, weight.stored)), "float32"
            n_rows = len(tensor)
            if weight.order is not None:
                tensor = tensor[weight.order.rows(row, n_rows)]
            if weight.offset:
                tensor, dtype = to_float32(tensor, dtype) + np.float32(weight.offset), "float32"
            yield tensor, dtype
            row += n_rows
            self.release(name)

    def fp8_parts(self, weight: Weight) -> Iterator[tuple[Bytes, Floats]]:
        """What a weight that the engine has in fp8 is stacked from: elements, and scales of its form. What
        is stored in another type is rounded to fp8.

        A part leaves this process's memory when the next one is asked for. Raises CheckpointError for
        elements that are no numbers, which kernels would take for numbers.
        """
        assert weight.scales is not None
        if weight.stored is None:
            yield from (quantize(to_float32(*part), weight.scales) for part in self.parts(weight))
            return
        row = 0
        for name in weight.tensors:
            elements, scales = self._elements(name), self.scales(name, weight.stored)
            n_rows = len(elements)
            if weight.order is not None:  # within blocks, where there are such
                order = weight.order.rows(row, n_rows)
                elements, scales = elements[order], scales[order] if len(scales) == n_rows else scales
            yield elements, scales
            row += n_rows
            self.release(name)

    def _elements(self, name: str) -> Bytes:
        """Of an fp8 tensor. Raises CheckpointError."""
        elements: Bytes = self.tensor(name)
        if elements.size and (elements & NAN).max() == NAN:
            raise CheckpointError(f"{self._entry(name).file}: '{name}' holds elements that are no numbers")
        return elements

    def scales(self, name: str, stored: StoredScales) -> Floats:
        """Those of an fp8 tensor, in the form in which they are loaded. Raises CheckpointError."""
        rows, columns = self.tensor(name).shape
        found = [name + suffix for suffix in SCALE_SUFFIXES if name + suffix in self]
        if not found:
            wanted = " or ".join(f"'{name}{suffix}'" for suffix in SCALE_SUFFIXES)
            raise CheckpointError(f"{self._entry(name).file}: '{name}' is fp8, and has no {wanted} beside it")
        values = self._positive(found[0])
        shape, wanted_shape = values.shape, stored.shape(rows, columns)
        if tuple(size for size in shape if size > 1) != wanted_shape:
            raise CheckpointError(
                f"{self._entry(name).file}: '{found[0]}' has shape {shape}; scales by {stored.value} of "
                f"{rows} x {columns} elements have {wanted_shape or (1,)}"
            )
        if stored is StoredScales.TENSOR:
            return np.broadcast_to(values.reshape(1, 1), ScaleForm.ROW.shape(rows, columns))
        return values.reshape(stored.loaded.shape(rows, columns))

    def cache_scale(self, names: tuple[str, ...]) -> float:
        """The number that a checkpoint has by one of these names, 1 where it has none: k_scale and v_scale of
        gpu_backend.models.description.Layer. Raises CheckpointError."""
        found = [name for name in names if name in self]
        if not found:
            return 1.0
        value = self._positive(found[0])
        if value.size != 1 or not value.item() > 0:
            file = self._entry(found[0]).file
            raise CheckpointError(f"{file}: '{found[0]}' must be one positive number, found {value.tolist()}")
        return float(value.item())

    def _positive(self, name: str) -> Floats:
        """The values of a tensor of scales. Raises CheckpointError for what cannot be one."""
        if self.dtype(name) == FP8:
            raise CheckpointError(f"{self._entry(name).file}: '{name}' holds scales in fp8")
        values = self.float32(name)
        wrong = values[~((values >= 0) & np.isfinite(values))]
        if wrong.size:
            raise CheckpointError(
                f"{self._entry(name).file}: '{name}' holds {wrong.flat[0]}, which is no scale"
            )
        return values

    def stacked(self, weight: Weight) -> NDArray[np.float32]:
        """The values of a weight, in its shape, contiguous: of one in fp8, element times scale."""
        self.check(weight)
        out = np.empty(weight.shape, np.float32)
        row = 0
        if weight.scales is not None:
            values: Iterator[Floats] = (dequantized(*part) for part in self.fp8_parts(weight))
        else:
            values = (to_float32(*part) for part in self.parts(weight))
        for part in values:
            out[row : row + len(part)] = part
            row += len(part)
        return out

    def check_all(self, model: Model) -> None:
        """Raises CheckpointError unless every weight can be read; touches headers and scales only."""
        for weight in model.weights():
            self.check(weight)
        for layer in model.layers:
            self.cache_scale(layer.k_scale), self.cache_scale(layer.v_scale)

    def check(self, weight: Weight) -> None:
        """Raises CheckpointError unless every tensor of `weight` is there, is of the type that config.json
        says, and they stack to its shape."""
        shapes = [self.tensor(name).shape for name in weight.tensors]
        rows = sum(shape[0] for shape in shapes if shape)
        if any((rows, *shape[1:]) != weight.shape for shape in shapes):
            raise CheckpointError(
                f"{self._entry(weight.tensors[0]).file}: {' + '.join(weight.tensors)} have shapes "
                f"{', '.join(map(str, shapes))}; config.json asks for {weight.shape} together"
            )
        row = 0
        for name, shape in zip(weight.tensors, shapes, strict=True):
            self._check_type(name, weight)
            if weight.scales is ScaleForm.BLOCK and row % SCALE_BLOCK:
                file = self._entry(name).file
                raise CheckpointError(
                    f"{file}: '{name}' with scales by block is stacked behind {row} rows, no multiple of "
                    f"{SCALE_BLOCK}"
                )
            row += shape[0]

    def _check_type(self, name: str, weight: Weight) -> None:
        """A head or a router may be fp8 or not: the engine has them in its own type."""
        dtype, file = self.dtype(name), self._entry(name).file
        if dtype == FP8 and weight.stored is None:
            raise CheckpointError(f"{file}: '{name}' is fp8, but by config.json it is not quantized")
        if dtype != FP8 and weight.stored is not None and weight.scales is not None:
            raise CheckpointError(f"{file}: '{name}' is {dtype}, but by config.json it is fp8")
        if dtype == FP8 and weight.stored is not None:
            self.scales(name, weight.stored)

    def _entry(self, name: str) -> _Entry:
        entry = self._entries.get(name)
        if entry is None:
            raise CheckpointError(f"{self.directory}: the checkpoint has no tensor '{name}'")
        return entry


def _files(directory: Path) -> list[Path]:
    index = directory / INDEX
    if not index.exists():
        if (directory / SINGLE).exists():
            return [directory / SINGLE]
        raise CheckpointError(f"{directory}: neither {SINGLE} nor {INDEX} found")
    try:
        shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{index}: not a safetensors index: {error!r}") from None
    missing = [name for name in shards if not (directory / name).exists()]
    if missing:
        raise CheckpointError(f"{directory}: {INDEX} names {', '.join(missing)}, which is not there")
    return [directory / name for name in shards]


def _read_entries(file: Path) -> dict[str, _Entry]:
    with file.open("rb") as stream:
        size = file.stat().st_size
        n = int.from_bytes(stream.read(8), "little")
        if size < 8 or n > min(size - 8, MAX_HEADER_BYTES):
            raise CheckpointError(f"{file}: not a safetensors file: its header would be {n} of {size} bytes")
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        header = json.loads(mapped[8 : 8 + n])
        header.pop("__metadata__", None)
        return {name: _entry(file, name, info, mapped, 8 + n) for name, info in header.items()}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{file}: damaged safetensors header: {error!r}") from None


def _entry(file: Path, name: str, info: dict[str, Any], mapped: mmap.mmap, base: int) -> _Entry:
    if info["dtype"] not in STORAGE:
        raise CheckpointError(f"{file}: '{name}' is {info['dtype']}; supported are {', '.join(STORAGE)}")
    dtype, storage = STORAGE[info["dtype"]]
    begin, end = info["data_offsets"]
    shape = tuple(info["shape"])
    n = math.prod(shape)
    if not 0 <= begin <= end <= len(mapped) - base or end - begin != n * np.dtype(storage).itemsize:
        raise CheckpointError(f"{file}: '{name}' of shape {shape} cannot lie at bytes {begin} to {end}")
    data = np.frombuffer(mapped, storage, count=n, offset=base + begin).reshape(shape)
    return _Entry(file, dtype, data, mapped, base + begin)
