"""fp8 tensors and their scales: what is read, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from quantized_factory import make_quantized
from safetensors.torch import load_file, save_file

from gpu_backend.models.description import HeadOrder, Weight
from gpu_backend.models.quantization import ScaleForm, StoredScales
from gpu_backend.models.registry import read_model
from gpu_backend.weights.checkpoint import Checkpoint
from gpu_backend.weights.safetensors import CheckpointError

VALUES = torch.linspace(-400, 400, 256 * 160).reshape(256, 160).to(torch.float8_e4m3fn)
BY_TENSOR = Weight(("w",), (256, 160), stored=StoredScales.TENSOR, scales=ScaleForm.ROW)
BY_ROW = Weight(("w",), (256, 160), stored=StoredScales.CHANNEL, scales=ScaleForm.ROW)
BY_BLOCK = Weight(("w",), (256, 160), stored=StoredScales.BLOCK, scales=ScaleForm.BLOCK)
BLOCKS = torch.tensor([[0.5, 2.0], [0.25, 3.0]])


def saved(directory: Path, **tensors: torch.Tensor) -> Checkpoint:
    save_file(tensors, directory / "model.safetensors")
    return Checkpoint(directory)


@pytest.mark.parametrize("suffix", ["_scale", "_scale_inv"])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_the_scale_of_a_tensor_becomes_that_of_each_row(
    tmp_path: Path, suffix: str, shape: tuple[int, ...]
) -> None:
    checkpoint = saved(tmp_path, **{"w": VALUES, f"w{suffix}": torch.full(shape, 0.5, dtype=torch.bfloat16)})
    [(elements, scales)] = checkpoint.fp8_parts(BY_TENSOR)
    np.testing.assert_array_equal(elements, VALUES.view(torch.uint8).numpy())
    np.testing.assert_array_equal(scales, np.full((256, 1), 0.5, np.float32))
    np.testing.assert_array_equal(checkpoint.stacked(BY_TENSOR), 0.5 * VALUES.float().numpy())


def test_scales_of_blocks_at_the_edge_are_for_what_is_there(tmp_path: Path) -> None:
    loaded = saved(tmp_path, w=VALUES, w_scale_inv=BLOCKS).stacked(BY_BLOCK)
    for row, column, scale in ((0, 0, 0.5), (127, 159, 2.0), (128, 127, 0.25), (255, 128, 3.0)):
        assert loaded[row, column] == scale * VALUES[row, column].float()


def test_rows_in_another_order_take_their_scales_along(tmp_path: Path) -> None:
    order = HeadOrder(heads=2, dims=(*range(0, 128, 2), *range(1, 128, 2)))
    rows = order.rows(0, 256)
    scales = torch.arange(1.0, 257.0)
    weight = Weight(("w",), (256, 160), order, stored=StoredScales.CHANNEL, scales=ScaleForm.ROW)
    loaded = saved(tmp_path, w=VALUES, w_scale=scales).stacked(weight)
    np.testing.assert_array_equal(loaded, (VALUES.float() * scales[:, None]).numpy()[rows])
    weight = Weight(("w",), (256, 160), order, stored=StoredScales.BLOCK, scales=ScaleForm.BLOCK)
    loaded = saved(tmp_path, w=VALUES, w_scale=BLOCKS).stacked(weight)
    np.testing.assert_array_equal(loaded[:128, 0], 0.5 * VALUES.float().numpy()[rows][:128, 0])


@pytest.mark.parametrize("fp8", [False, True])
def test_a_head_may_be_fp8_and_is_loaded_as_its_values(tmp_path: Path, fp8: bool) -> None:
    weight = Weight(("w",), (256, 160), stored=StoredScales.TENSOR)
    tensors = {"w": VALUES, "w_scale": torch.tensor(2.0)} if fp8 else {"w": 2 * VALUES.float()}
    loaded = saved(tmp_path, **tensors).stacked(weight)
    np.testing.assert_array_equal(loaded, 2 * VALUES.float().numpy())


@pytest.mark.parametrize(
    ("weight", "scales", "message"),
    [
        (BY_ROW, {}, "'w' is fp8, and has no 'w_scale' or 'w_scale_inv' beside it"),
        (BY_ROW, {"w_scale": torch.ones(255)}, r"'w_scale' has shape \(255,\); .* by channel of 256 x 160"),
        (BY_ROW, {"w_scale": torch.tensor(1.0)}, r"have \(256,\)"),
        (BY_TENSOR, {"w_scale": torch.ones(256, 1)}, r"by tensor of 256 x 160 elements have \(1,\)"),
        (BY_TENSOR, {"w_scale_inv": BLOCKS}, r"'w_scale_inv' has shape \(2, 2\); scales by tensor"),
        (BY_BLOCK, {"w_scale_inv": torch.ones(2, 1)}, r"by block of 256 x 160 elements have \(2, 2\)"),
        (BY_BLOCK, {"w_scale": torch.ones(256, 1)}, r"by block of 256 x 160 elements have \(2, 2\)"),
        (BY_TENSOR, {"w_scale": torch.tensor(torch.nan)}, "'w_scale' holds nan, which is no scale"),
        (BY_TENSOR, {"w_scale": torch.tensor(torch.inf)}, "'w_scale' holds inf, which is no scale"),
        (BY_TENSOR, {"w_scale": torch.tensor(-1.0)}, "'w_scale' holds -1.0, which is no scale"),
        (BY_BLOCK, {"w_scale": -BLOCKS}, "'w_scale' holds -0.5, which is no scale"),
        (BY_TENSOR, {"w_scale": torch.ones(1).to(torch.float8_e4m3fn)}, "'w_scale' holds scales in fp8"),
    ],
)
def test_scales_that_cannot_be_are_refused(
    tmp_path: Path, weight: Weight, scales: dict[str, torch.Tensor], message: str
) -> None:
    with pytest.raises(CheckpointError, match=rf"model\.safetensors: .*{message}"):
        saved(tmp_path, w=VALUES, **scales).check(weight)


def test_types_that_config_json_does_not_tell_are_refused(tmp_path: Path) -> None:
    one = torch.tensor(1.0)
    with pytest.raises(CheckpointError, match=r"'w' is fp8, but by config\.json it is not quantized"):
        saved(tmp_path, w=VALUES, w_scale=one).check(Weight(("w",), (256, 160)))
    with pytest.raises(CheckpointError, match=r"'w' is float32, but by config\.json it is fp8"):
        saved(tmp_path, w=VALUES.float(), w_scale=one).check(BY_TENSOR)
    with pytest.raises(CheckpointError, match=r"'w' is 'F8_E5M2'; supported are BF16, F16, F32, F8_E4M3"):
        saved(tmp_path, w=VALUES.float().to(torch.float8_e5m2), w_scale=one).check(BY_TENSOR)


@pytest.mark.parametrize("code", [0x7F, 0xFF])
@pytest.mark.parametrize("weight", [BY_TENSOR, Weight(("w",), (256, 160), stored=StoredScales.TENSOR)])
def test_elements_that_are_no_numbers_are_refused(tmp_path: Path, weight: Weight, code: int) -> None:
    """In a matrix that stays fp8, and in a head that does not: kernels know numbers only."""
    values = VALUES.view(torch.uint8).clone()
    values[200, 3] = code
    checkpoint = saved(tmp_path, w=values.view(torch.float8_e4m3fn), w_scale=torch.tensor(1.0))
    with pytest.raises(CheckpointError, match="'w' holds elements that are no finite numbers"):
        checkpoint.stacked(weight)


def test_parts_whose_blocks_do_not_meet_are_refused(tmp_path: Path) -> None:
    """Else their scales would be more than there is room for."""
    first, second = VALUES.split([130, 126])
    scales = {"a_scale": torch.ones(2, 2), "b_scale": torch.ones(1, 2)}
    checkpoint = saved(tmp_path, a=first.clone(), b=second.clone(), **scales)
    weight = Weight(("a", "b"), (256, 160), stored=StoredScales.BLOCK, scales=ScaleForm.BLOCK)
    with pytest.raises(CheckpointError, match="'b' with scales by block is stacked behind 130 rows"):
        checkpoint.check(weight)


NAMES = ("self_attn.k_scale", "self_attn.attn.k_scale", "self_attn.k_proj.k_scale")


@pytest.mark.parametrize("name", NAMES)
def test_the_scale_of_a_layers_keys(tmp_path: Path, name: str) -> None:
    checkpoint = saved(tmp_path, **{name: torch.tensor([0.25], dtype=torch.bfloat16)})
    assert checkpoint.cache_scale(NAMES) == 0.25
    assert checkpoint.cache_scale(("self_attn.v_scale",)) == 1.0


@pytest.mark.parametrize(
    ("value", "message"),
    [(0.0, "one positive number, found 0"), ([1.0, 2.0], "one positive number"), (-2.0, "holds -2.0")],
)
def test_a_scale_of_keys_that_cannot_be_is_refused(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        saved(tmp_path, k_scale=torch.tensor(value)).cache_scale(("k_scale",))


def test_scales_of_keys_count_where_the_cache_is_in_fp8(tmp_path: Path) -> None:
    """Else they may be whatever they are: one for each head, say."""
    make_quantized(tmp_path, "llama", "fp8-block")
    tensors, name = load_file(tmp_path / "model.safetensors"), "model.layers.1.self_attn.k_scale"
    save_file({**tensors, name: torch.ones(4, dtype=torch.float64)}, tmp_path / "model.safetensors")
    model, checkpoint = read_model(tmp_path), Checkpoint(tmp_path)
    checkpoint.check_all(model)
    with pytest.raises(CheckpointError, match=rf"'{name}' is 'F64'; supported are"):
        checkpoint.check_all(model, kv_fp8=True)


@pytest.mark.parametrize("layout", ["fp8-block", "modelopt-file"])
def test_a_model_is_refused_before_it_is_loaded(tmp_path: Path, layout: str) -> None:
    """Whatever layer the mistake is in."""
    make_quantized(tmp_path, "qwen3-moe", layout)
    model = read_model(tmp_path)
    Checkpoint(tmp_path).check_all(model)
    tensors = load_file(tmp_path / "model.safetensors")
    name = next(n for n in tensors if n.startswith("model.layers.1.mlp.experts.7.up_proj.weight_scale"))
    save_file({**tensors, name: -tensors[name]}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"layers\.1\.mlp\.experts\.7\.up_proj.* is no scale"):
        Checkpoint(tmp_path).check_all(model)
    save_file({k: v for k, v in tensors.items() if k != name}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"experts\.7\.up_proj\.weight' is fp8, and has no"):
        Checkpoint(tmp_path).check_all(model)
