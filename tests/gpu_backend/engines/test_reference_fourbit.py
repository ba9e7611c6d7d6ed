"""The reference engine over weights in four bits: logits and greedy tokens against transformers, which
computes with their values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from fourbit_checkpoint import FOUR_BITS, mxfp4
from model_factory import as_published, make_model
from quantized_factory import SIZES, make_quantized
from reference_rig import Rig
from safetensors.torch import load_file, save_file

from gpu_backend.models.fourbit import quantize
from gpu_backend.models.quantization import ROUNDINGS, GroupForm

SMALL: dict[str, Any] = {"num_hidden_layers": 2, "intermediate_size": 256}


def check(rig: Rig) -> None:
    """A prompt in chunks, packed with another; then both decode."""
    for row, n in {0: 70, 1: 9}.items():
        rig.driver.start(row, rig.prompt(n, seed=row))
    rig.prefill([(0, 0, 40)])
    rig.prefill([(0, 40, 70), (1, 0, 9)])
    rig.decode([0, 1])
    rig.close()


@pytest.mark.parametrize("layout", FOUR_BITS)
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3-moe"])
def test_published_checkpoints(tmp_path: Path, family: str, layout: str) -> None:
    check(Rig(tmp_path, make_quantized(tmp_path, family, layout)))


@pytest.mark.parametrize("layout", ["awq", "nvfp4"])
def test_float16(tmp_path: Path, layout: str) -> None:
    check(Rig(tmp_path, make_quantized(tmp_path, "llama", layout, torch.float16)))


@pytest.mark.parametrize("name", ["int4", "mxfp4"])
def test_rounded_while_loading(tmp_path: Path, name: str) -> None:
    """The linear layers and the experts, and nothing else."""
    form = ROUNDINGS[name]
    assert isinstance(form, GroupForm)
    model = make_model(tmp_path, "qwen3-moe", torch.bfloat16, **SMALL, **SIZES["qwen3-moe"])
    values: dict[str, Any] = load_file(tmp_path / "model.safetensors")
    for tensor in values:
        values[tensor] = values[tensor].float()
        if tensor.endswith("_proj.weight"):
            values[tensor] = torch.from_numpy(quantize(values[tensor].numpy(), form).values())
    model.save_pretrained(tmp_path / "plain")
    save_file(values, tmp_path / "plain" / "model.safetensors", {"format": "pt"})
    oracle = type(model).from_pretrained(tmp_path / "plain", dtype=torch.float32).eval()
    as_published(tmp_path)
    check(Rig(tmp_path, oracle, form=form))


def test_the_values_are_not_those_before_rounding(tmp_path: Path) -> None:
    """Else the tests here would hold of an engine that reads something else."""
    make_quantized(tmp_path, "llama", "awq")
    oracle = make_model(tmp_path / "other", "llama", torch.bfloat16, **SMALL, **SIZES["llama"])
    with pytest.raises(AssertionError, match="relative error"):
        check(Rig(tmp_path, oracle))


def test_rows_in_another_order_keep_their_scales(tmp_path: Path) -> None:
    """A partial rotation loads the rows of q and k in another order."""
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75}
    check(Rig(tmp_path, make_quantized(tmp_path, "phi3", "packed-zeros", rope_parameters=rope)))


def test_fused_experts_in_mxfp4(tmp_path: Path) -> None:
    """A layer's experts in two pairs of tensors, as gpt-oss has them, beside attention in bf16."""
    sizes = {**SMALL, **SIZES["qwen3-moe"]}
    model = make_model(tmp_path, "qwen3-moe", torch.bfloat16, **sizes)
    plain = load_file(tmp_path / "model.safetensors")
    values = {name: tensor.float() for name, tensor in plain.items()}
    out = {name: tensor for name, tensor in plain.items() if ".experts." not in name}
    for layer in range(2):
        name = f"model.layers.{layer}.mlp.experts"
        for fused, parts in {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}.items():
            experts = []
            for index in range(8):
                packed = [mxfp4(plain[f"{name}.{index}.{part}.weight"]) for part in parts]
                for part, (_, read) in zip(parts, packed, strict=True):
                    values[f"{name}.{index}.{part}.weight"] = read
                tensors = [tensors for tensors, _ in packed]
                experts.append({key: torch.cat([one[key] for one in tensors]) for key in tensors[0]})
            blocks = torch.stack([one[".weight_packed"] for one in experts])
            out[f"{name}.{fused}_blocks"] = blocks.reshape(*blocks.shape[:2], -1, 16)
            out[f"{name}.{fused}_scales"] = torch.stack([one[".weight_scale"] for one in experts])
    model.save_pretrained(tmp_path / "plain")
    save_file(values, tmp_path / "plain" / "model.safetensors", {"format": "pt"})
    oracle = type(model).from_pretrained(tmp_path / "plain", dtype=torch.float32).eval()
    save_file(out, tmp_path / "model.safetensors", {"format": "pt"})
    as_published(tmp_path)
    path = tmp_path / "config.json"
    left = ["model.layers.*.self_attn", "model.layers.*.mlp.gate", "model.embed_tokens", "lm_head"]
    section = {"quant_method": "mxfp4", "modules_to_not_convert": left}
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": section}))
    check(Rig(tmp_path, oracle))


def test_gpt_oss(tmp_path: Path) -> None:
    """Rows of gate and of up in turn, beside biases, in tensors that are not turned as those in bf16 are."""
    sizes = {"hidden_size": 96, "intermediate_size": 64}
    model = make_model(tmp_path, "gpt-oss", torch.bfloat16, **sizes)
    plain = load_file(tmp_path / "model.safetensors")
    values = {name: tensor.float() for name, tensor in plain.items()}
    out = dict(plain)
    for name in (name for name in plain if name.endswith(("experts.gate_up_proj", "experts.down_proj"))):
        experts = [mxfp4(one.T.contiguous()) for one in out.pop(name)]
        blocks = torch.stack([tensors[".weight_packed"] for tensors, _ in experts])
        out[f"{name}_blocks"] = blocks.reshape(*blocks.shape[:2], -1, 16)
        out[f"{name}_scales"] = torch.stack([tensors[".weight_scale"] for tensors, _ in experts])
        values[name] = torch.stack([read.T for _, read in experts]).contiguous()
    model.save_pretrained(tmp_path / "plain")
    save_file(values, tmp_path / "plain" / "model.safetensors", {"format": "pt"})
    oracle = type(model).from_pretrained(tmp_path / "plain", dtype=torch.float32).eval()
    save_file(out, tmp_path / "model.safetensors", {"format": "pt"})
    path = tmp_path / "config.json"
    left = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    section = {"quant_method": "mxfp4", "modules_to_not_convert": left}
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": section}))
    check(Rig(tmp_path, oracle))
