"""Whether keys and values are cached in fp8, and with which scales."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from model_config import model_config
from model_factory import make_model
from reference_rig import LIMITS, Rig
from safetensors.torch import load_file, save_file

from gpu_backend.models.quantization import Quantization
from gpu_backend.options import BackendOptions, caches_fp8, described_model

MADE_FOR_FP8 = Quantization("fp8", (), (), kv_cache=True)


@pytest.mark.parametrize(
    ("wanted", "of_checkpoint", "found"),
    [
        ("auto", None, False),
        ("auto", replace(MADE_FOR_FP8, kv_cache=False), False),
        ("auto", MADE_FOR_FP8, True),
        ("bf16", MADE_FOR_FP8, False),
        ("fp8", None, True),
    ],
)
def test_the_flag_or_else_the_checkpoint_decides(
    wanted: str, of_checkpoint: Quantization | None, found: bool
) -> None:
    assert caches_fp8(wanted, replace(model_config(), quantization=of_checkpoint)) is found


def test_another_type_is_refused() -> None:
    with pytest.raises(ValueError, match="kv-cache-dtype is int8, it must be one of auto, bf16, fp8"):
        caches_fp8("int8", model_config())


def logits(directory: Path, kv_fp8: bool) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Of a prompt's last token."""
    rig = Rig(directory, None, replace(LIMITS, kv_fp8=kv_fp8))
    rig.driver.start(0, rig.prompt(60, seed=1))
    rig.driver.prefill([(0, 0, 60)])
    found = rig.engine.logits(1).copy()
    rig.close()
    return found


def test_scales_of_the_checkpoint_are_those_of_the_cache(tmp_path: Path) -> None:
    """Keys are small enough to vanish without a scale: only the checkpoint's keeps what attention finds."""
    make_model(tmp_path, "llama", torch.float32, num_hidden_layers=2)
    tensors = load_file(tmp_path / "model.safetensors")
    for name in [name for name in tensors if name.endswith(("q_proj.weight", "k_proj.weight"))]:
        tensors[name] *= 500 if "q_proj" in name else 1 / 500
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    exact, without = logits(tmp_path, False), logits(tmp_path, True)
    for layer in range(2):
        tensors[f"model.layers.{layer}.self_attn.k_scale"] = torch.tensor(1e-4)
        tensors[f"model.layers.{layer}.self_attn.v_scale"] = torch.tensor(0.01)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    scaled = logits(tmp_path, True)
    apart, apart_without = (float(np.linalg.norm(x - exact)) for x in (scaled, without))
    assert 0 < apart < apart_without / 3
    assert apart < 0.1 * float(np.linalg.norm(exact))


def notices(directory: Path, kv_cache_dtype: str) -> list[str]:
    told: list[str] = []
    described_model(BackendOptions(directory, kv_cache_dtype=kv_cache_dtype), told.append)
    return told


def with_key_bias(directory: Path, bias: float) -> dict[str, torch.Tensor]:
    """A Qwen2 whose second layer adds `bias` to one dimension of its keys, and more to queries and values."""
    make_model(directory, "qwen2", torch.bfloat16, num_hidden_layers=2)
    tensors = load_file(directory / "model.safetensors")
    tensors["model.layers.1.self_attn.k_proj.bias"][5] = -bias
    for name in ("q_proj", "v_proj"):
        tensors[f"model.layers.0.self_attn.{name}.bias"][0] = 1000.0
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    return tensors


def test_large_biases_of_keys_are_warned_of(tmp_path: Path) -> None:
    tensors = with_key_bias(tmp_path, 312.0)
    (told,) = notices(tmp_path, "fp8")
    assert told.startswith(
        "warning: keys of layer 1 have biases of up to 312, which a KV cache in fp8 rounds"
    )
    assert "--kv-cache-dtype bf16" in told
    assert notices(tmp_path, "auto") == notices(tmp_path, "bf16") == []
    tensors["model.layers.1.self_attn.k_scale"] = torch.tensor(2.0)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    assert notices(tmp_path, "fp8") == []


def test_small_biases_of_keys_are_not_warned_of(tmp_path: Path) -> None:
    with_key_bias(tmp_path, 8.0)
    assert notices(tmp_path, "fp8") == []
