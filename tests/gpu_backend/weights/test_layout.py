"""Checkpoints in the layouts that transformers 5 writes beside the published ones, and reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from model_factory import as_gemma3_conditional, as_published, make_model
from quantized_checkpoint import compressed, group
from quantized_factory import make_quantized
from reference_rig import Rig
from safetensors.torch import load_file, save_file

from gpu_backend.models.description import Model
from gpu_backend.models.quantization import StoredScales
from gpu_backend.options import BackendOptions, described_model
from gpu_backend.weights.checkpoint import Checkpoint
from gpu_backend.weights.safetensors import CheckpointError

FUSED = "model.layers.0.mlp.experts.gate_up_proj"


def described(directory: Path, quantization: str | None = None) -> Model:
    return described_model(BackendOptions(directory, quantization=quantization))


def answers(rig: Rig) -> None:
    """As its oracle, in prefill and decode."""
    try:
        rig.driver.start(0, rig.prompt(20, seed=1))
        rig.prefill([(0, 0, 20)])
        rig.decode([0])
    finally:
        rig.close()


def rename(directory: Path, published: str, other: str) -> None:
    """Of the names of tensors: how they begin."""
    file = directory / "model.safetensors"
    tensors = {
        other + name.removeprefix(published) if name.startswith(published) else name: tensor
        for name, tensor in load_file(file).items()
    }
    save_file(tensors, file, {"format": "pt"})


@pytest.mark.parametrize("tied", [True, False])
def test_a_gemma_that_takes_images_as_transformers_names_its_own_modules(tmp_path: Path, tied: bool) -> None:
    oracle = make_model(tmp_path, "gemma3", tie_word_embeddings=tied)
    as_published(tmp_path)
    as_gemma3_conditional(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": tied}))
    published = described(tmp_path)
    rename(tmp_path, "language_model.model.", "model.language_model.")
    rename(tmp_path, "language_model.lm_head.", "lm_head.")
    model = described(tmp_path)
    assert model.embed.tensors == ("model.language_model.embed_tokens.weight",)
    assert model.tied_head == published.tied_head == tied
    assert model.n_elements == published.n_elements
    Checkpoint(tmp_path).check_all(model, kv_fp8=True)
    answers(Rig(tmp_path, oracle))


def test_a_quantization_names_the_modules_that_the_checkpoint_has(tmp_path: Path) -> None:
    make_model(tmp_path, "gemma3", num_hidden_layers=1, layer_types=["full_attention"])
    as_published(tmp_path)
    as_gemma3_conditional(tmp_path)
    rename(tmp_path, "language_model.model.", "model.language_model.")
    section = compressed(["model.language_model.layers.0.self_attn.o_proj"], group("channel", ["Linear"]))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": section}))
    (layer,) = described(tmp_path).layers
    assert layer.o.stored is None
    assert layer.qkv.stored is StoredScales.CHANNEL
    assert layer.k_scale[0] == "model.language_model.layers.0.self_attn.k_scale"


def test_what_is_missing_in_either_layout_is_told_by_its_published_name(tmp_path: Path) -> None:
    make_model(tmp_path, "gemma3", num_hidden_layers=1, layer_types=["full_attention"])
    as_published(tmp_path)
    as_gemma3_conditional(tmp_path)
    rename(tmp_path, "language_model.model.", "something.else.")
    with pytest.raises(CheckpointError, match=r"no tensor 'language_model\.model\.embed_tokens\.weight'"):
        described(tmp_path)


def test_experts_may_be_one_tensor(tmp_path: Path) -> None:
    oracle = make_model(tmp_path, "qwen3-moe")
    published = described(tmp_path)
    one_by_one = Checkpoint(tmp_path)
    wanted = [one_by_one.stacked(weight) for weight in published.weights()]
    oracle.save_pretrained(tmp_path, save_original_format=False)
    model, checkpoint = described(tmp_path), Checkpoint(tmp_path)
    assert FUSED in checkpoint
    for weight, values in zip(model.weights(), wanted, strict=True):
        torch.testing.assert_close(torch.from_numpy(checkpoint.stacked(weight)), torch.from_numpy(values))
    answers(Rig(tmp_path, oracle))


def test_experts_in_one_tensor_are_rounded_to_fp8_as_others_are(tmp_path: Path) -> None:
    sizes = {"hidden_size": 128, "moe_intermediate_size": 128, "head_dim": 64, "num_hidden_layers": 1}
    oracle = make_model(tmp_path, "qwen3-moe", **sizes)
    rounded = [Checkpoint(tmp_path).stacked(weight) for weight in described(tmp_path, "fp8").weights()]
    oracle.save_pretrained(tmp_path, save_original_format=False)
    for weight, values in zip(described(tmp_path, "fp8").weights(), rounded, strict=True):
        assert (Checkpoint(tmp_path).stacked(weight) == values).all()


@pytest.mark.parametrize("shape", [(8, 2 * 40), (8, 96, 2 * 40), (4, 2 * 2 * 40, 96), ()])
def test_experts_in_one_tensor_of_another_shape_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    oracle = make_model(tmp_path, "qwen3-moe", num_hidden_layers=1)
    oracle.save_pretrained(tmp_path, save_original_format=False)
    file = tmp_path / "model.safetensors"
    save_file({**load_file(file), FUSED: torch.zeros(shape)}, file, {"format": "pt"})
    with pytest.raises(CheckpointError, match=rf"{FUSED} have shapes .*; config.json asks for \(8, 80, 96\)"):
        Checkpoint(tmp_path).check_all(described(tmp_path))


def test_experts_in_one_tensor_of_fp8_are_refused_with_what_to_do(tmp_path: Path) -> None:
    make_quantized(tmp_path, "qwen3-moe", "fp8-block")
    file = tmp_path / "model.safetensors"
    tensors = {name: each for name, each in load_file(file).items() if ".experts." not in name}
    save_file({**tensors, FUSED: torch.zeros(8, 80, 96)}, file, {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"experts\.gate_up_proj' .* fused .*save_original_format=True"):
        described(tmp_path)
