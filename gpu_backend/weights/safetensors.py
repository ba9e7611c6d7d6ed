"""Files of safetensors, mapped and not copied.

Format: 8 bytes little-endian length n; n bytes of JSON {name: {dtype, shape, data_offsets: [begin, end)}};
the data.
"""

from __future__ import annotations

import math
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_backend.models.fp8 import FP8
from ringbuffer.model_file import ModelFileError, open_file, parse_json, read_json, shown

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
# numpy has no bfloat16 and no fp8: their tensors are views of their bits.
STORAGE = {
    "BF16": ("bfloat16", "<u2"),
    "F16": ("float16", "<f2"),
    "F32": ("float32", "<f4"),
    "F8_E4M3": (FP8, "u1"),
}
MAX_HEADER_BYTES = 100_000_000  # as the format's own library allows, of which metadata may be the most
MAX_INDEX_BYTES = 64 << 20
MAX_SHARDS = 4096
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


def tensor_files(directory: Path) -> list[Path]:
    index = directory / INDEX
    if not index.exists():
        if (directory / SINGLE).exists():
            return [directory / SINGLE]
        raise CheckpointError(f"{directory}: neither {SINGLE} nor {INDEX} found")
    try:
        weight_map = read_json(index, MAX_INDEX_BYTES)["weight_map"]
        shards = sorted(set(weight_map.values()))
    except ModelFileError as error:
        raise CheckpointError(str(error)) from None
    except (KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{index}: not a safetensors index: {shown(error)}") from None
    if len(shards) > MAX_SHARDS:
        raise CheckpointError(f"{index}: names {len(shards)} files; a checkpoint has at most {MAX_SHARDS}")
    for name in shards:
        if not _is_file_name(name):
            raise CheckpointError(f"{index}: {shown(name)} is not the name of a file of the directory")
        if not (directory / name).exists():
            raise CheckpointError(f"{directory}: {INDEX} names {shown(name)}, which is not there")
    return [directory / name for name in shards]


def _is_file_name(name: object) -> bool:
    return (
        isinstance(name, str)
        and 0 < len(name) < 256
        and name not in (".", "..")
        and not {"/", "\0"} & {*name}
    )


def read_tensors(file: Path) -> dict[str, Tensor]:
    try:
        with open_file(file) as stream:
            size = os.fstat(stream.fileno()).st_size
            n = int.from_bytes(stream.read(8), "little")
            if size < 8 or n > min(size - 8, MAX_HEADER_BYTES):
                raise CheckpointError(f"{file}: not a safetensors file: its header has no sensible length")
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        header = parse_json(mapped[8 : 8 + n])
        header.pop("__metadata__", None)
        return {name: _tensor(file, name, info, mapped, 8 + n) for name, info in header.items()}
    except (CheckpointError, FileNotFoundError):
        raise
    except ModelFileError as error:
        raise CheckpointError(str(error)) from None
    except (ValueError, KeyError, AttributeError, TypeError, OSError) as error:
        raise CheckpointError(f"{file}: damaged safetensors header: {shown(error)}") from None


def _tensor(file: Path, name: str, info: dict[str, Any], mapped: mmap.mmap, base: int) -> Tensor:
    if info["dtype"] not in STORAGE:
        supported = ", ".join(STORAGE)
        raise CheckpointError(f"{file}: {shown(name)} is {shown(info['dtype'])}; supported are {supported}")
    dtype, storage = STORAGE[info["dtype"]]
    begin, end = info["data_offsets"]
    shape = tuple(info["shape"])
    sizes = (begin, end, *shape)
    if len(shape) > MAX_DIMENSIONS or not all(isinstance(n, int) and 0 <= n < 1 << 48 for n in sizes):
        raise CheckpointError(f"{file}: {shown(name)} has no sensible shape or place: {shown(info)}")
    n = math.prod(shape)
    if not begin <= end <= len(mapped) - base or end - begin != n * np.dtype(storage).itemsize:
        raise CheckpointError(f"{file}: {shown(name)} of shape {shape} cannot lie at bytes {begin} to {end}")
    data = np.frombuffer(mapped, storage, count=n, offset=base + begin).reshape(shape)
    return Tensor(file, dtype, data, mapped, base + begin)
