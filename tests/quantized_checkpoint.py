"""Small models in fp8, laid out as published checkpoints are, and the same with their values in fp32.

oracle = make_quantized(directory, "llama", "compressed-tensors-channel")
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

LARGEST = 448.0


@dataclass(frozen=True)
class Layout:
    """How a tool writes a checkpoint: its section of config.json, what it leaves as it is, a tensor's scales
    and what they are called, and further tensors beside a weight."""

    section: dict[str, Any]
    kept: str  # a pattern of modules' names
    scales: Callable[[Tensor], Tensor]
    suffix: str = "_scale"
    dtype: torch.dtype = torch.float32
    beside: dict[str, float] = field(default_factory=dict)
    modelopt: dict[str, Any] | None = None  # hf_quant_config.json


def of_tensor(weight: Tensor) -> Tensor:
    return weight.abs().max() / LARGEST


def of_rows(weight: Tensor) -> Tensor:
    return weight.abs().amax(1, keepdim=True) / LARGEST


def of_blocks(weight: Tensor) -> Tensor:
    parts = [torch.stack([b.abs().max() for b in rows.split(128, 1)]) for rows in weight.split(128)]
    return torch.stack(parts) / LARGEST


def spread(scales: Tensor, weight: Tensor) -> Tensor:
    """The scale of each element."""
    if scales.numel() == 1:
        return scales.reshape(1, 1).expand_as(weight)
    if scales.shape == (len(weight), 1):
        return scales.expand_as(weight)
    rows, columns = weight.shape
    scales = scales.reshape(-(-rows // 128), -(-columns // 128))
    return scales.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :columns]


def group(strategy: str, targets: list[str], static: bool = False, **more: Any) -> dict[str, Any]:
    """One of compressed-tensors' config groups."""
    inputs = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": not static}
    weights = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False, "strategy": strategy}
    return {
        "targets": targets,
        "weights": {**weights, **more},
        "input_activations": {**inputs, "strategy": "tensor" if static else "token"},
        "output_activations": None,
    }


def compressed(ignore: list[str], *groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "quantization_status": "compressed",
        "config_groups": {f"group_{index}": one for index, one in enumerate(groups)},
        "ignore": ignore,
        "kv_cache_scheme": None,
        **more,
    }


USUAL = r"lm_head|.*\.mlp\.gate$"
BLOCK = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
}
KV = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}
LAYOUTS = {
    "fp8-block": Layout(
        {**BLOCK, "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate", "mlp.gate"]},
        USUAL, of_blocks, "_scale_inv",
    ),
    "fp8-block-bf16-scales": Layout(BLOCK, USUAL, of_blocks, "_scale_inv", torch.bfloat16),
    "fp8-tensor-static": Layout(
        {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head", "*.mlp.gate"]},
        USUAL, of_tensor, beside={"input_scale": 0.02},
    ),
    "fp8-tensor-static-inverse": Layout(  # Ministral 3
        {
            "quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None,
            "dequantize": False, "modules_to_not_convert": ["model.vision_tower", "lm_head", "mlp.gate"],
        },
        USUAL, of_tensor, "_scale_inv", beside={"activation_scale": 0.02},
    ),
    "fp8-everything": Layout(  # a head and a router, too
        {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": None},
        "nothing", of_tensor, "_scale_inv",
    ),
    "compressed-tensors-channel": Layout(
        compressed(
            ["lm_head", r"re:.*mlp\.gate$", "model.layers.1.self_attn.o_proj"], group("channel", ["Linear"])
        ),
        USUAL + r"|model\.layers\.1\.self_attn\.o_proj", of_rows, dtype=torch.bfloat16,
    ),
    "compressed-tensors-tensor-static": Layout(
        compressed(["lm_head", r"re:.*mlp\.gate$"], group("tensor", ["Linear"], static=True)),
        USUAL, lambda weight: of_tensor(weight).reshape(1), beside={"input_scale": 0.02},
    ),
    "compressed-tensors-block": Layout(
        compressed(["lm_head"], group("block", [r"re:.*_proj$"], block_structure=[128, 128])),
        USUAL, of_blocks,
    ),
    "modelopt-file": Layout(
        {}, USUAL, of_tensor, beside={"input_scale": 0.02},
        modelopt={
            "producer": {"name": "modelopt", "version": "0.33.0"},
            "quantization": {
                "quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head", "*.gate"],
            },
        },
    ),
    "modelopt-block": Layout(
        {"quant_method": "modelopt", "quant_algo": "fp8_pb_wo", "ignore": ["lm_head", "*.mlp.gate"]},
        USUAL, lambda weight: of_blocks(weight)[:, None, :, None],
    ),
    "modelopt-config": Layout(
        {
            "quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head", "model.layers.*.mlp.gate"],
            "kv_cache_scheme": KV,
        },
        USUAL, of_tensor,
    ),
}  # fmt: skip


def quantize_files(directory: Path, layout: Layout) -> dict[str, Tensor]:
    """Rewrites a checkpoint and its config.json; returns its values in fp32."""
    out, values = {}, {}
    for name, tensor in load_file(directory / "model.safetensors").items():
        module = name.removesuffix(".weight")
        values[name] = tensor.float()
        linear = tensor.ndim == 2 and "embed" not in name
        if not linear or re.match(layout.kept, module):
            out[name] = tensor
            continue
        scales = layout.scales(tensor.float()).to(layout.dtype)
        each = spread(scales.float(), tensor)
        out[name] = (tensor.float() / each).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
        out[name + layout.suffix] = scales
        out |= {f"{module}.{key}": torch.tensor(value) for key, value in layout.beside.items()}
        values[name] = out[name].float() * each
    save_file(out, directory / "model.safetensors", {"format": "pt"})
    path = directory / "config.json"
    config = json.loads(path.read_text())
    if layout.section:
        config["quantization_config"] = layout.section
    path.write_text(json.dumps(config))
    if layout.modelopt:
        (directory / "hf_quant_config.json").write_text(json.dumps(layout.modelopt))
    return values
