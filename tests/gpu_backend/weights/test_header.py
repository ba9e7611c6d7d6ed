"""Headers of safetensors files: honest ones are read, and none costs much more than its length."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from gpu_backend.weights import shards
from gpu_backend.weights.checkpoint import Checkpoint
from gpu_backend.weights.header import MAX_TENSORS_BYTES, Header
from gpu_backend.weights.safetensors import CheckpointError, TensorFile

ENTRY = b'{"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}'
MANY = 1_000_000


def header(text: bytes, most: int = 16) -> Header:
    return Header(memoryview(text), most)


@pytest.mark.parametrize(
    "text",
    [
        b'{"w": {"shape": [' + b"[]," * MANY + b"1]}}",
        b'{"w": {"what": [' + b"{}," * 15 + b"[]," * MANY + b"1]}}",
        b'{"__metadata__": {"a": [' + b"[]," * MANY + b"1]}}",
        b'{"__metadata__": {"a": "' + b"{" * MANY + b'"}}',
        b'{"w": ' + b"[" * MANY,
        b'{"w": {"data_offsets": [' + b"1" * MANY + b", 1]}}",
        b"{" + b'"w": 1,' * MANY + b'"w": 1}',
        b"{" + b",".join(b'"%x": {}' % i for i in range(MANY // 4)) + b"}",
    ],
    ids=["shape", "unknown", "metadata", "braces in metadata", "deep", "digits", "twice", "tensors"],
)
def test_what_a_header_costs_is_bounded_by_its_length(text: bytes) -> None:
    tracemalloc.start()
    try:
        with suppress(ValueError):
            header(text)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 3 * len(text) + (1 << 16)


def test_metadata_may_be_longer_than_all_tensors_may() -> None:
    long = b"x" * MAX_TENSORS_BYTES
    read = header(b'{"__metadata__": {"dtype": "%s"}, "w": %s}' % (long, ENTRY))
    assert list(read) == ["w"]
    with pytest.raises(ValueError, match="more than 32 MiB beside its metadata"):
        header(b'{"%s": %s}' % (long, ENTRY))


def test_a_header_has_at_most_so_many_tensors() -> None:
    two = b'{"__metadata__": {"{": "{{{"}, "a": %s, "b": %s}' % (ENTRY, ENTRY)
    assert list(header(two, 2)) == ["a", "b"]
    with pytest.raises(ValueError, match="more tensors than the 1 that a checkpoint may still have"):
        header(two, 1)


def test_all_files_together_have_at_most_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "MAX_TENSORS", 3)
    for name in "ab":
        save_file({name: torch.zeros(1), f"{name}2": torch.zeros(1)}, tmp_path / f"{name}.safetensors")
    index = '{"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}'
    (tmp_path / "model.safetensors.index.json").write_text(index)
    checkpoint = Checkpoint(tmp_path)
    checkpoint.tensor("a")
    with pytest.raises(CheckpointError, match=r"b\.safetensors: .*more tensors than the 1 that"):
        checkpoint.tensor("b")


@pytest.mark.parametrize("key", ["dtype", "shape", "data_offsets"])
def test_what_an_entry_says_twice_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=f"{key} twice"):
        header(ENTRY.join((b'{"w": ', b"}")).replace(b'{"dtype', b'{"%s": 0, "dtype' % key.encode()))


@pytest.mark.parametrize("name", ["dtype", "shape", "data_offsets", "a{b", 'a"b', "ä"])
def test_a_tensor_may_have_any_name(tmp_path: Path, name: str) -> None:
    save_file({name: torch.ones(2)}, tmp_path / "one.safetensors", {name: name, "format": "pt"})
    assert TensorFile(tmp_path / "one.safetensors").tensor(name).data.tolist() == [1, 1]


def test_the_first_of_several_names_that_are_there_twice_is_told() -> None:
    text = b"{" + b", ".join(b'"%s": %s' % (name, ENTRY) for name in (b"a", b"b", b"c", b"b", b"c")) + b"}"
    with pytest.raises(ValueError, match="it has 'b' twice"):
        header(text)
