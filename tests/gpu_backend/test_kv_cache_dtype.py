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
from gpu_backend.options import caches_fp8

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
