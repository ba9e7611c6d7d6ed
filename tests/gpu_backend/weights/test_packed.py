"""Matrices of four bits: what other tools have written is read as they read it, or is refused.

four_bits.safetensors has a small matrix that each tool has written, and what the tool reads it as:
compressed-tensors 0.20.1 (packed, nvfp4-packed, mxfp4-packed), AutoAWQ 0.2.9, AutoGPTQ 0.7.1, ModelOpt 0.47.0
(nvfp4) and transformers 5.24 (mxfp4).
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from gpu_backend.models.description import HeadOrder, Weight
from gpu_backend.models.fourbit import E2M1, ORDER, packed
from gpu_backend.models.quantization import Codes, GroupForm, Packing, StoredGroups
from gpu_backend.weights.checkpoint import Checkpoint
from gpu_backend.weights.safetensors import CheckpointError

WRITTEN = load_file(Path(__file__).with_name("four_bits.safetensors"))
ROWS, COLUMNS = 32, 128
STORED = {
    "awq": StoredGroups(Packing.AWQ, 32, symmetric=False),
    "gptq": StoredGroups(Packing.GPTQ, 32, symmetric=False),
    "packed": StoredGroups(Packing.PACKED, 32),
    "packed-zeros": StoredGroups(Packing.PACKED, 32, symmetric=False),
    "packed-rows": StoredGroups(Packing.PACKED, None),
    "nvfp4-packed": StoredGroups(Packing.NVFP4_PACKED, 16),
    "mxfp4-packed": StoredGroups(Packing.MXFP4_PACKED, 32),
    "nvfp4": StoredGroups(Packing.NVFP4, 16),
}
# Their tools leave values rounded to the type of the scales.
ROUNDED = {
    "awq": torch.float16,
    "packed": torch.bfloat16,
    "packed-zeros": torch.bfloat16,
    "packed-rows": torch.float16,
}
LOST = {"nvfp4-packed": 2.0**-8}  # by its tool, which multiplies in bfloat16


def written(tool: str) -> dict[str, torch.Tensor]:
    """The tensors of a tool's matrix, as module "w" has them."""
    of = {name.removeprefix(f"{tool}."): tensor for name, tensor in WRITTEN.items()}
    return {f"w.{name}": tensor for name, tensor in of.items() if f"{tool}.{name}" in WRITTEN}


def saved(directory: Path, tensors: dict[str, torch.Tensor]) -> Checkpoint:
    save_file(tensors, directory / "model.safetensors")
    return Checkpoint(directory)


def weight(tool: str, **changes: Any) -> Weight:
    stored = STORED[tool]
    form = stored.loaded(COLUMNS)
    return Weight(("w.weight",), (ROWS, COLUMNS), stored=stored, scales=form, **changes)


@pytest.mark.parametrize("tool", STORED)
def test_a_matrix_is_read_as_the_tool_that_wrote_it_reads_it(tmp_path: Path, tool: str) -> None:
    tensors = written(tool)
    expected = tensors.pop("w.expected")
    checkpoint = saved(tmp_path, tensors)
    checkpoint.check(weight(tool))
    values = torch.from_numpy(checkpoint.stacked(weight(tool)))
    rounded = values.to(ROUNDED.get(tool, torch.float32)).float()
    torch.testing.assert_close(rounded, expected, rtol=LOST.get(tool, 2e-7), atol=0)


@pytest.mark.parametrize("tool", STORED)
def test_a_head_in_four_bits_is_loaded_as_its_values(tmp_path: Path, tool: str) -> None:
    """The engine has a head in its own type; and one that is stored as it is stays so."""
    tensors = written(tool)
    expected = tensors.pop("w.expected")
    head = Weight(("w.weight",), (ROWS, COLUMNS), stored=STORED[tool])
    checkpoint = saved(tmp_path, tensors)
    assert checkpoint.has(head)
    [(values, dtype)] = checkpoint.parts(head)
    assert dtype == "float32"
    np.testing.assert_allclose(values, expected, rtol=4e-3)
    plain = saved(tmp_path, {"w.weight": expected})
    plain.check(head)
    np.testing.assert_array_equal(plain.stacked(head), expected)


def test_experts_in_one_tensor(tmp_path: Path) -> None:
    """As gpt-oss has them: [experts][rows][groups][16]."""
    of = {name.removeprefix("mxfp4.experts"): tensor for name, tensor in WRITTEN.items() if "mxfp4.e" in name}
    expected = WRITTEN["mxfp4.expected"]
    tensors = {"experts_blocks": of["_blocks"], "experts_scales": of["_scales"]}
    stored = StoredGroups(Packing.MXFP4, 32)
    experts = Weight(
        ("experts",), (3 * 16, 64), stored=stored, scales=stored.loaded(64), fused="experts", matrices=3
    )
    checkpoint = saved(tmp_path, tensors)
    checkpoint.check(experts)
    parts = list(checkpoint.group_parts(experts))
    assert [part.codes.shape for part in parts] == [(16, 64)] * 3
    np.testing.assert_array_equal(checkpoint.stacked(experts).reshape(3, 16, 64), expected)


def test_rows_in_another_order_take_their_scales_along(tmp_path: Path) -> None:
    order = HeadOrder(heads=1, dims=tuple(reversed(range(16))))
    tensors = written("packed-zeros")
    expected = tensors.pop("w.expected")
    checkpoint = saved(tmp_path, tensors)
    [part] = checkpoint.group_parts(weight("packed-zeros", order=order))
    values = torch.from_numpy(part.values()).bfloat16().float()
    torch.testing.assert_close(values[:16], expected[:16].flip(0), rtol=0, atol=0)
    torch.testing.assert_close(values[16:], expected[16:], rtol=0, atol=0)


def test_large_groups_become_several(tmp_path: Path) -> None:
    """Of a whole row of 96 columns three of 32; the values stay the same."""
    stored = StoredGroups(Packing.PACKED, None)
    assert stored.loaded(256) == GroupForm(Codes.INT4, 128)
    assert stored.loaded(96) == GroupForm(Codes.INT4, 32)
    assert StoredGroups(Packing.PACKED, 256).loaded(512) == GroupForm(Codes.INT4, 128)
    tensors = written("packed-rows")
    tensors["w.weight_packed"] = tensors["w.weight_packed"][:, :12].contiguous()
    expected = tensors.pop("w.expected")[:, :96]
    narrow = Weight(("w.weight",), (ROWS, 96), stored=stored, scales=stored.loaded(96))
    [part] = saved(tmp_path, tensors).group_parts(narrow)
    assert part.scales.shape == (ROWS, 3)
    np.testing.assert_array_equal(part.values().astype(np.float16), expected)


@pytest.mark.parametrize(
    ("tool", "name", "change", "message"),
    [
        ("gptq", "w.g_idx", lambda t: t.flip(0), r"'w\.g_idx' puts columns of a group apart \(desc_act\)"),
        ("gptq", "w.qzeros", None, r"no tensor 'w\.qzeros'"),
        (
            "gptq",
            "w.scales",
            lambda t: t[:, :-1],
            r"'w\.scales' is float32 of shape \(4, 31\); .* asks for bf",
        ),
        ("awq", "w.qweight", lambda t: t[:-8], r"'w\.qweight' is int32 of shape \(120, 4\)"),
        ("awq", "w.scales", lambda t: t * torch.inf, r"'w\.scales' holds what is no finite number"),
        (
            "packed",
            "w.weight_packed",
            lambda t: t.float(),
            r"'w\.weight_packed' is float32 .* asks for int32",
        ),
        ("packed-zeros", "w.weight_zero_point", None, r"no tensor 'w\.weight_zero_point'"),
        ("nvfp4", "w.weight_scale_2", lambda t: -t.reshape(1), r"must be one positive number, found \[-0"),
        ("nvfp4-packed", "w.weight_global_scale", lambda t: t * torch.nan, r"holds what is no finite number"),
        ("mxfp4-packed", "w.weight_scale", lambda t: t * 0 + 255, "holds an exponent that is no number"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, tool: str, name: str, change: Any, message: str) -> None:
    tensors = written(tool)
    del tensors["w.expected"]
    assert name in tensors
    if change is None:
        del tensors[name]
    else:
        tensors[name] = change(tensors[name]).contiguous()
    with pytest.raises(CheckpointError, match=message.replace("bf", "bfloat16")):
        saved(tmp_path, tensors).stacked(weight(tool))


def test_integers_in_place_of_a_weight_are_refused(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path, {"w.weight": torch.zeros(ROWS, COLUMNS, dtype=torch.int32)})
    with pytest.raises(CheckpointError, match=r"'w\.weight' is int32, but by config\.json"):
        checkpoint.check(Weight(("w.weight",), (ROWS, COLUMNS)))


@pytest.mark.parametrize("kind", Codes)
def test_codes_in_memory_are_where_the_tensor_cores_take_them(kind: Codes) -> None:
    """Of each 32 columns, word w of 16 bytes has in its halves the columns 8 p + 2 w and 1 more."""
    codes = np.arange(2 * 64).reshape(2, 64) * 7 % 16
    halves = packed(codes.astype(np.uint8), kind).view(np.uint16).reshape(2, 2, 4, 2)
    for group in range(2):
        for w in range(4):
            for p, one in itertools.product(range(4), range(2)):
                expected, half = codes[:, 32 * group + 8 * p + 2 * w + one], halves[:, group, w, one]
                if kind is Codes.INT4:
                    np.testing.assert_array_equal(half >> 4 * p & 15, expected)
                else:
                    np.testing.assert_array_equal(half >> (6, 3, 0, 9)[p] & 7, expected & 7)
                    np.testing.assert_array_equal(half >> (15, 12, 14, 13)[p] & 1, expected >> 3)
    assert sorted(ORDER) == list(range(32))
    assert E2M1.tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]
