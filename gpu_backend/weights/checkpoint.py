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

from gpu_backend.models.description import Model, Weight
from gpu_backend.models.half import to_float32

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
# numpy has no bfloat16: its tensors are views of their bits.
STORAGE = {"BF16": ("bfloat16", "<u2"), "F16": ("float16", "<f2"), "F32": ("float32", "<f4")}
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
        """A read-only view in the tensor's shape: float16, float32, or uint16 with the bits of bfloat16."""
        return self._entry(name).data

    def dtype(self, name: str) -> str:
        """ "bfloat16", "float16" or "float32"."""
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
        offset.

        A part leaves this process's memory when the next one is asked for.
        """
        row = 0
        for name in weight.tensors:
            tensor, dtype = self.tensor(name), self.dtype(name)
            n_rows = len(tensor)
            if weight.order is not None:
                tensor = tensor[weight.order.rows(row, n_rows)]
            if weight.offset:
                tensor, dtype = to_float32(tensor, dtype) + np.float32(weight.offset), "float32"
            yield tensor, dtype
            row += n_rows
            self.release(name)

    def stacked(self, weight: Weight) -> NDArray[np.float32]:
        """The values of a weight, in its shape, contiguous."""
        self.check(weight)
        out = np.empty(weight.shape, np.float32)
        row = 0
        for part, dtype in self.parts(weight):
            out[row : row + len(part)] = to_float32(part, dtype)
            row += len(part)
        return out

    def check_all(self, model: Model) -> None:
        """Raises CheckpointError unless every weight can be read; touches headers only."""
        for weight in model.weights():
            self.check(weight)

    def check(self, weight: Weight) -> None:
        """Raises CheckpointError unless every tensor of `weight` is there and they stack to its shape."""
        shapes = [self.tensor(name).shape for name in weight.tensors]
        rows = sum(shape[0] for shape in shapes if shape)
        if any((rows, *shape[1:]) != weight.shape for shape in shapes):
            raise CheckpointError(
                f"{self._entry(weight.tensors[0]).file}: {' + '.join(weight.tensors)} have shapes "
                f"{', '.join(map(str, shapes))}; config.json asks for {weight.shape} together"
            )

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
