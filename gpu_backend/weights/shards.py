"""Which file of a model directory has which tensor: the files that make up a checkpoint.

The index decides, where there is one. Its files may hold more: copies that another file has replaced, or
tensors of somebody else. What the index does not name in a file is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpu_backend.weights.header import MAX_TENSORS
from gpu_backend.weights.safetensors import CheckpointError, Tensor, TensorFile
from ringbuffer.model_file import ModelFileError, read_json, shown

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
MAX_INDEX_BYTES = 64 << 20
MAX_SHARDS = 4096
MAX_NAME = 255  # characters of a file's name


class Shards:
    """The tensors of `directory`, by their names. Raises CheckpointError.

    A file is opened when one of its tensors is asked for: one that nothing needs may be missing.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._index = directory / INDEX
        self._files: dict[str, TensorFile] = {}  # those that are open, by the names that the index has
        if self._index.exists():
            self._file_of = _read_index(self._index)
        elif (directory / SINGLE).exists():
            single = self._files[SINGLE] = TensorFile(directory / SINGLE)
            self._file_of = dict.fromkeys(single, SINGLE)
        else:
            raise CheckpointError(f"{directory}: neither {SINGLE} nor {INDEX} found")

    def __iter__(self) -> Iterator[str]:
        return iter(self._file_of)

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def holds(self, name: str) -> bool:
        """Whether the tensor is in the file that should have it. Raises CheckpointError without the file."""
        return name in self and name in self._file(self._file_of[name], name)

    def tensor(self, name: str) -> Tensor:
        """Raises CheckpointError, which names the tensor, and its file if there should be one."""
        shard = self._file_of.get(name)
        if shard is None:
            where = (
                f"{self._index}: the index" if self._index.exists() else f"{self._directory}: the checkpoint"
            )
            raise CheckpointError(f"{where} has no tensor '{name}'")
        file = self._file(shard, name)
        if name not in file:
            raise CheckpointError(
                f"{self._index}: says that {shown(shard)} has {shown(name)}, which it has not"
            )
        return file.tensor(name)

    def _file(self, shard: str, name: str) -> TensorFile:
        """`name`: of the tensor that it is needed for."""
        try:
            if shard not in self._files:
                left = MAX_TENSORS - sum(map(len, self._files.values()))
                self._files[shard] = TensorFile(self._directory / shard, left)
            return self._files[shard]
        except FileNotFoundError:
            other = self._directory / SINGLE
            hint = f", or remove the index if {SINGLE} is the whole model" if other.exists() else ""
            raise CheckpointError(
                f"{self._index}: names {shown(shard)} as the file of {shown(name)}, which is not there: "
                f"download it{hint}"
            ) from None


def _read_index(index: Path) -> dict[str, str]:
    """The name of each tensor's file. Raises CheckpointError."""
    try:
        file_of = read_json(index, MAX_INDEX_BYTES)["weight_map"]
        shards = set(file_of.values())
    except ModelFileError as error:
        raise CheckpointError(str(error)) from None
    except (KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{index}: not a safetensors index: {shown(error)}") from None
    if len(shards) > MAX_SHARDS:
        raise CheckpointError(f"{index}: names {len(shards)} files; a checkpoint has at most {MAX_SHARDS}")
    for name in shards:
        if not _is_inside(name):
            raise CheckpointError(f"{index}: {shown(name)} is not the name of a file of the directory")
    return dict(file_of)


def _is_inside(name: object) -> bool:
    """Whether it names a file of the directory, or of a folder in it."""
    if not isinstance(name, str) or len(name) > MAX_NAME or "\0" in name:
        return False
    return not {"", ".", ".."} & {*name.split("/")}
