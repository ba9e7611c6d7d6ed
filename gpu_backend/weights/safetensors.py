"""One file of safetensors, mapped and not copied.

Format: 8 bytes little-endian length n; n bytes of JSON {name: {dtype, shape, data_offsets: [begin, end)}};
the data.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_backend.models.fp8 import FP8
from gpu_backend.weights.header import MAX_HEADER_BYTES, MAX_TENSORS, Header, Info
from ringbuffer.model_file import ModelFileError, open_file, shown

# numpy has no bfloat16 and no fp8: their tensors are views of their bits.
STORAGE = {
    "BF16": ("bfloat16", "<u2"),
    "F16": ("float16", "<f2"),
    "F32": ("float32", "<f4"),
    "F8_E4M3": (FP8, "u1"),
    "F8_E8M0": ("float8_e8m0fnu", "u1"),
    "U8": ("uint8", "u1"),
    "I32": ("int32", "<i4"),
}
MAX_DIMENSIONS = 8


class CheckpointError(ValueError):
    """A file is missing, damaged or holds something unexpected. Names the file and the tensor."""


@dataclass(frozen=True)
class Tensor:
    """One of a file: `data` is a read-only view of it, of its bits where numpy lacks the type."""

    file: Path
    dtype: str
    data: NDArray[Any]
    mapped: mmap.mmap
    begin: int  # of the data in the file


class TensorFile:
    """The tensors of a file, by their names. Raises CheckpointError.

    What the header says of a tensor is checked when it is asked for: beside the tensors that a model needs
    there may be others, of types that nothing here reads. `most`: more tensors are refused.
    """

    def __init__(self, path: Path, most: int = MAX_TENSORS) -> None:
        self.path = path
        self._tensors: dict[str, Tensor] = {}
        try:
            with open_file(path) as stream:
                size = os.fstat(stream.fileno()).st_size
                n = int.from_bytes(stream.read(8), "little")
                if size < 8 or n > min(size - 8, MAX_HEADER_BYTES):
                    raise CheckpointError(
                        f"{path}: not a safetensors file: its header has no sensible length"
                    )
                self._mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            self._base = 8 + n
            self._header = Header(memoryview(self._mapped)[8 : self._base], most)
        except (CheckpointError, FileNotFoundError):
            raise
        except ModelFileError as error:
            raise CheckpointError(str(error)) from None
        except (ValueError, OSError) as error:
            raise CheckpointError(f"{path}: damaged safetensors header: {shown(error)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._header)

    def __len__(self) -> int:
        return len(self._header)

    def __contains__(self, name: str) -> bool:
        return name in self._header

    def tensor(self, name: str) -> Tensor:
        """One that the file has. Raises CheckpointError where it cannot be read."""
        tensor = self._tensors.get(name)
        if tensor is None:
            try:
                info = self._header.info(name)
            except ValueError as error:
                what = f"{shown(name)}: {shown(error)}"
                raise CheckpointError(f"{self.path}: damaged safetensors header: {what}") from None
            try:
                tensor = self._tensors[name] = self._view(name, info)
            except CheckpointError:
                raise
            except (ValueError, TypeError):
                what = f"{shown(name)} is {shown(info)}"
                raise CheckpointError(f"{self.path}: damaged safetensors header: {what}") from None
        return tensor

    def _view(self, name: str, info: Info) -> Tensor:
        what = f"{self.path}: {shown(name)}"
        if info.dtype not in STORAGE:
            raise CheckpointError(f"{what} is {shown(info.dtype)}; supported are {', '.join(STORAGE)}")
        dtype, storage = STORAGE[info.dtype]
        begin, end = info.data_offsets
        shape = tuple(info.shape)
        sizes = (begin, end, *shape)
        if len(shape) > MAX_DIMENSIONS or not all(isinstance(n, int) and 0 <= n < 1 << 48 for n in sizes):
            raise CheckpointError(f"{what} has no sensible shape or place: {shown(info)}")
        n, room = math.prod(shape), len(self._mapped) - self._base
        if not begin <= end <= room or end - begin != n * np.dtype(storage).itemsize:
            raise CheckpointError(f"{what} of shape {shape} cannot lie at bytes {begin} to {end}")
        if name in self._header.overlapping:
            raise CheckpointError(f"{what} has bytes that are another tensor's, too: the header is damaged")
        data = np.frombuffer(self._mapped, storage, count=n, offset=self._base + begin).reshape(shape)
        return Tensor(self.path, dtype, data, self._mapped, self._base + begin)
