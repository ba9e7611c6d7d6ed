"""Which file has a tensor: what model.safetensors.index.json says, and nothing that it does not say."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from gpu_backend.weights.checkpoint import Checkpoint
from gpu_backend.weights.safetensors import CheckpointError

INDEX = "model.safetensors.index.json"


def save(path: Path, **values: float) -> None:
    """A file of tensors of two such numbers."""
    path.parent.mkdir(exist_ok=True)
    save_file({name: torch.full((2,), float(value)) for name, value in values.items()}, path)


def write_index(directory: Path, index: Any) -> None:
    (directory / INDEX).write_text(json.dumps(index))


def checkpoint(directory: Path, **file_of: Any) -> Checkpoint:
    """That of an index which has these tensors in these files."""
    write_index(directory, {"metadata": {"total_size": 16}, "weight_map": file_of})
    return Checkpoint(directory)


def value(of: Checkpoint, name: str) -> float:
    return float(of.float32(name)[0])


@pytest.mark.parametrize(("first", "second"), [("1.safetensors", "2.safetensors"), ("z", "a")])
def test_copies_in_other_shards_do_not_count(tmp_path: Path, first: str, second: str) -> None:
    """Whichever file comes first."""
    save(tmp_path / first, a=1, b=9)
    save(tmp_path / second, b=2, a=9)
    read = checkpoint(tmp_path, a=first, b=second)
    assert (value(read, "a"), value(read, "b")) == (1, 2)


def test_a_tensor_that_only_a_file_has_is_not_there(tmp_path: Path) -> None:
    save(tmp_path / "1.safetensors", a=1, left_over=2)
    read = checkpoint(tmp_path, a="1.safetensors")
    assert list(read) == ["a"]
    assert "left_over" not in read
    assert not read.holds("left_over")
    with pytest.raises(CheckpointError, match=rf"{INDEX}: the index has no tensor 'left_over'"):
        read.tensor("left_over")


def test_files_that_the_index_does_not_name_are_not_opened(tmp_path: Path) -> None:
    """Nor does model.safetensors count beside an index: an adapter, or a copy in another type."""
    save(tmp_path / "1.safetensors", a=1)
    save(tmp_path / "model.safetensors", a=9)
    os.mkfifo(tmp_path / "0.safetensors")
    (tmp_path / "adapter_model.safetensors").write_text("damaged")
    assert value(checkpoint(tmp_path, a="1.safetensors"), "a") == 1


def test_a_file_may_be_missing_that_nothing_needs(tmp_path: Path) -> None:
    save(tmp_path / "1.safetensors", a=1)
    read = checkpoint(tmp_path, a="1.safetensors", image="2.safetensors")
    assert value(read, "a") == 1
    message = rf"{INDEX}: names '2\.safetensors' as the file of 'image', which is not there: download it$"
    for asked in (read.tensor, read.holds):
        with pytest.raises(CheckpointError, match=message):
            asked("image")


def test_beside_a_whole_model_a_missing_shard_may_mean_that_the_index_is_old(tmp_path: Path) -> None:
    save(tmp_path / "model.safetensors", a=1)
    with pytest.raises(CheckpointError, match=r"or remove the index if model\.safetensors is the whole"):
        checkpoint(tmp_path, a="model-00001-of-00002.safetensors").tensor("a")


def test_a_tensor_that_its_file_lacks_is_told_with_both(tmp_path: Path) -> None:
    """Published indexes name some: heads that are tied, buffers that are computed."""
    save(tmp_path / "1.safetensors", a=1)
    save(tmp_path / "2.safetensors", b=2)
    read = checkpoint(tmp_path, a="1.safetensors", b="1.safetensors")
    assert value(read, "a") == 1
    assert "b" in read
    assert not read.holds("b")
    with pytest.raises(CheckpointError, match=rf"{INDEX}: says that '1\.safetensors' has 'b', which it has"):
        read.tensor("b")


def test_a_shard_may_lie_in_a_folder(tmp_path: Path) -> None:
    save(tmp_path / "part" / "1.safetensors", a=1)
    assert value(checkpoint(tmp_path, a="part/1.safetensors"), "a") == 1


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd", "../secret", "a/../../secret", "a//secret", "./secret", "..", ".", "", 7, None, ["x"],
        "x\0y", "a\n" * 999,
    ],
)  # fmt: skip
def test_files_outside_of_the_directory_are_refused(tmp_path: Path, name: Any) -> None:
    (tmp_path.parent / "secret").write_text("root:x:0:0")
    with pytest.raises(CheckpointError, match=r"not the name of a file|not a safetensors index") as caught:
        checkpoint(tmp_path, a=name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("index", [{"metadata": {"total_size": 8}}, {"weight_map": None}, {"weight_map": []}])
def test_an_index_without_a_map_is_refused(tmp_path: Path, index: Any) -> None:
    save(tmp_path / "model.safetensors", a=1)
    write_index(tmp_path, index)
    with pytest.raises(CheckpointError, match=rf"{INDEX}: not a safetensors index"):
        Checkpoint(tmp_path)


def test_a_fifo_as_a_shard_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError, match="not a regular file"):
        checkpoint(tmp_path, a="a.safetensors").tensor("a")


def test_shards_in_three_types(tmp_path: Path) -> None:
    values = torch.linspace(-3, 3, 24).reshape(4, 6)
    types = {"a": torch.bfloat16, "b": torch.float16, "c": torch.float32}
    for name, dtype in types.items():
        save_file({name: values.to(dtype)}, tmp_path / f"{name}.safetensors", {"format": "pt"})
    read = checkpoint(tmp_path, **{name: f"{name}.safetensors" for name in types})
    assert list(read) == ["a", "b", "c"]
    assert [read.tensor(name).dtype for name in types] == [np.uint16, np.float16, np.float32]
    for name, dtype in types.items():
        assert read.dtype(name) == str(dtype).removeprefix("torch.")
        np.testing.assert_array_equal(read.float32(name), values.to(dtype).float().numpy())
