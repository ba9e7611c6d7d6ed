"""safetensors: what is read, and what is refused with which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from gpu_backend.models.description import HeadOrder, Weight
from gpu_backend.weights.checkpoint import Checkpoint
from gpu_backend.weights.safetensors import CheckpointError


def test_rows_of_heads_are_read_in_the_order_that_a_weight_asks_for(tmp_path: Path) -> None:
    """Across tensors of whole heads; the heads behind the first `heads` stay as they are."""
    rows = torch.arange(6 * 4 * 2, dtype=torch.float32).reshape(24, 2)  # 6 heads of 4
    save_file(
        {"q": rows[:12].clone(), "k": rows[12:20].clone(), "v": rows[20:].clone()},
        tmp_path / "model.safetensors",
    )
    order = HeadOrder(heads=5, dims=(0, 2, 1, 3))
    loaded = Checkpoint(tmp_path).stacked(Weight(("q", "k", "v"), (24, 2), order))
    heads = rows.numpy().reshape(6, 4, 2).copy()
    heads[:5] = heads[:5, [0, 2, 1, 3]]
    np.testing.assert_array_equal(loaded, heads.reshape(24, 2))


def test_an_offset_is_added_in_fp32(tmp_path: Path) -> None:
    values = torch.tensor([0.0009765625, -0.25, 3.0], dtype=torch.bfloat16)
    save_file({"norm": values}, tmp_path / "model.safetensors")
    loaded = Checkpoint(tmp_path).stacked(Weight(("norm",), (3,), offset=1.0))
    np.testing.assert_array_equal(loaded, values.float().numpy() + 1)


def test_tensors_that_were_released_leave_memory_and_come_back(tmp_path: Path) -> None:
    """A checkpoint that is read tensor by tensor never becomes resident as a whole."""
    values = torch.arange(8 << 20, dtype=torch.float32).reshape(8, -1)  # 32 MiB
    save_file({str(i): row for i, row in enumerate(values)}, tmp_path / "model.safetensors")
    checkpoint = Checkpoint(tmp_path)

    def mapped_kib() -> int:
        # By the whole path: others' files of this name may be mapped, too.
        file = str(tmp_path / "model.safetensors")
        lines = Path("/proc/self/smaps").read_text().split(file)[1].splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("Rss:")))

    most = 0
    for name in list(checkpoint):
        assert checkpoint.tensor(name).sum() == values[int(name)].numpy().sum()
        most = max(most, mapped_kib())
        checkpoint.release(name)
    assert most < 3 * 4096
    assert mapped_kib() < 1024
    np.testing.assert_array_equal(checkpoint.tensor("3"), values[3].numpy())


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"no tensor 'lm_head\.weight'"):
        Checkpoint(tmp_path).tensor("lm_head.weight")


ANY_TYPE = (
    "BOOL",
    "U16",
    "I64",
    "F64",
    "C64",
    "F8_E5M2",
    "F6_E2M3",
    "F4",
    "NEW_TYPE",
    None,
    ["F32"],
)


@pytest.mark.parametrize("dtype", ANY_TYPE)
def test_a_tensor_that_nobody_asks_for_may_have_any_type(tmp_path: Path, dtype: Any) -> None:
    """Buffers, parts for images, what a quantization left behind. Its type is refused when it is used."""
    header = {
        "w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        "other": {"dtype": dtype, "shape": [3], "data_offsets": [4, 6]},
    }
    content = safetensors_bytes(json.dumps(header).encode(), np.float32(7).tobytes() + b"xy")
    (tmp_path / "model.safetensors").write_bytes(content)
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.float32("w") == [7]
    with pytest.raises(CheckpointError, match=r"'other' is .*BF16, F16, F32, F8_E4M3|damaged safetensors"):
        checkpoint.tensor("other")


def test_a_tensor_without_elements(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1), "none": torch.zeros(0, 4)}, tmp_path / "model.safetensors")
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.tensor("none").shape == (0, 4)
    with pytest.raises(CheckpointError, match=r"none have shapes \(0, 4\); config.json asks for \(2, 4\)"):
        checkpoint.check(Weight(("none",), (2, 4)))


def test_tensors_that_share_bytes_are_refused_when_they_are_used(tmp_path: Path) -> None:
    """The format forbids it. Those beside them can be read."""
    places = {"a": (0, 8), "b": (4, 12), "c": (12, 16), "none": (14, 14)}
    header = {
        name: {"dtype": "F32", "shape": [(end - begin) // 4], "data_offsets": [begin, end]}
        for name, (begin, end) in places.items()
    }
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(json.dumps(header).encode(), bytes(16)))
    checkpoint = Checkpoint(tmp_path)
    assert [checkpoint.tensor(name).size for name in ("c", "none")] == [1, 0]
    for name in ("a", "b"):
        with pytest.raises(CheckpointError, match=f"'{name}' has bytes that are another tensor's"):
            checkpoint.tensor(name)


def test_a_name_that_a_header_has_twice_is_refused(tmp_path: Path) -> None:
    entry = '"w": {"dtype": "F32", "shape": [1], "data_offsets": [%d, %d]}'
    header = f"{{{entry % (0, 4)}, {entry % (4, 8)}}}"
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(header.encode(), bytes(8)))
    with pytest.raises(CheckpointError, match=r"damaged safetensors header: .*it has 'w' twice"):
        Checkpoint(tmp_path)


def safetensors_bytes(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data


def one_tensor(dtype: str, n: int, end: int, data: bytes) -> bytes:
    header = {"a": {"dtype": dtype, "shape": [n], "data_offsets": [0, end]}}
    return safetensors_bytes(json.dumps(header).encode(), data)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a safetensors file"),
        (b"PK\x03\x04 a zip archive, say", "not a safetensors file"),
        (safetensors_bytes(b"{}", length=3), "not a safetensors file"),
        (safetensors_bytes(b"[1]"), "damaged safetensors header"),
        (safetensors_bytes(b'{"a": {"dtype": "F32"}}'), "damaged safetensors header"),
        (one_tensor("I64", 1, 8, b"12345678"), "'a' is 'I64'; supported are BF16, F16, F32"),
        (one_tensor("F32", 1, 4, b"123"), r"'a' of shape \(1,\) cannot lie at bytes 0 to 4"),
        (one_tensor("F32", 2, 4, b"1234"), r"'a' of shape \(2,\) cannot lie at bytes 0 to 4"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        Checkpoint(tmp_path).tensor("a")


def test_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor"):
        Checkpoint(tmp_path)


def test_what_a_file_holds_is_not_told_where_it_is_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("/etc/passwd")
    with pytest.raises(CheckpointError, match="no sensible length") as caught:
        Checkpoint(tmp_path)
    with open("/etc/passwd", "rb") as file:
        assert str(int.from_bytes(file.read(8), "little")) not in str(caught.value)


@pytest.mark.parametrize(
    "info",
    [
        {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 0]},
        {"dtype": "F32", "shape": [1] * 100_000, "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": "1", "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]},
        {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "x" * 10**6, "shape": [1], "data_offsets": [0, 4]},
        None,
        [],
    ],
)
def test_entries_that_mean_harm_are_refused_in_a_short_line(tmp_path: Path, info: Any) -> None:
    name = "a" * 1000 + "\n"
    header = json.dumps({name: info}).encode()
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(header, b"1234"))
    with pytest.raises(CheckpointError) as caught:
        Checkpoint(tmp_path).tensor(name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("value", [float("nan"), -float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("place", [0, 1 << 18, -1])
def test_weights_that_are_no_finite_numbers_are_refused(
    tmp_path: Path, dtype: torch.dtype, value: float, place: int
) -> None:
    """A single one may spoil some answers and not others, which nobody would notice."""
    weight = torch.full((3, 1 << 17), -1.0, dtype=dtype)
    weight.view(-1)[5] = torch.finfo(dtype).max
    weight.view(-1)[6] = torch.finfo(dtype).min
    save_file({"w": weight}, tmp_path / "model.safetensors")
    wanted = Weight(("w",), tuple(weight.shape))
    assert sum(len(part) for part, _ in Checkpoint(tmp_path).parts(wanted)) == 3
    weight.view(-1)[place] = value
    save_file({"w": weight}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="'w' holds elements that are no finite numbers"):
        list(Checkpoint(tmp_path).parts(wanted))
