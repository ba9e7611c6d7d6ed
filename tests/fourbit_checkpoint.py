"""Checkpoints in four bits, laid out as tools lay them out, by a simple rounding of its own.

values = pack_files(directory, FOUR_BITS["awq"])
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
Packed = tuple[dict[str, Tensor], Tensor]  # by the ends of their names; the values that they stand for


def words(codes: Tensor, order: list[int] | None = None) -> Tensor:
    """Of eight codes along the last axis one word; code `order[i]` is in its nibble i."""
    parts = codes.to(torch.int64).reshape(*codes.shape[:-1], -1, 8)[..., order or list(range(8))]
    return (parts << 4 * torch.arange(8)).sum(-1).to(torch.uint32).view(torch.int32)


def integers(weight: Tensor, group: int, symmetric: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Codes [rows][columns], scales in the type of the weight and zeros [rows][groups]."""
    groups = weight.float().reshape(len(weight), -1, group)
    if symmetric:
        scales, zeros = groups.abs().amax(-1) / 7, None
    else:
        low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
        scales = (high - low) / 15
        zeros = (-low / scales).round().clamp(1, 15)
    scales = scales.to(weight.dtype)
    zeros = torch.full_like(scales, 8, dtype=torch.float32) if zeros is None else zeros
    codes = (groups / scales.float()[..., None] + zeros[..., None]).round().clamp(0, 15)
    return codes.reshape(weight.shape), scales, zeros


def of_integers(codes: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
    groups = codes.reshape(*scales.shape, -1)
    return ((groups - zeros[..., None]) * scales.float()[..., None]).reshape(codes.shape)


def numbers(weight: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Groups [rows][groups][columns of one], and scales in fp32 [rows][groups] before they are rounded."""
    groups = weight.float().reshape(len(weight), -1, group)
    return groups, groups.abs().amax(-1).clamp(min=1e-6) / 6


def of_numbers(groups: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """Bytes of two codes [rows][columns / 2], and their values."""
    sizes = groups.abs() / scales[..., None]
    codes = (sizes[..., None] - E2M1).abs().argmin(-1)
    values = E2M1[codes] * groups.sign() * scales[..., None]
    codes = (codes + 8 * (groups < 0)).reshape(len(groups), -1).to(torch.uint8)
    return codes[:, 0::2] | codes[:, 1::2] << 4, values.reshape(len(groups), -1)


def awq(weight: Tensor) -> Packed:
    codes, scales, zeros = integers(weight, 32, symmetric=False)
    tensors = {
        ".qweight": words(codes.T, AWQ_ORDER),
        ".qzeros": words(zeros.T, AWQ_ORDER),
        ".scales": scales.T,
    }
    return tensors, of_integers(codes, scales, zeros)


def gptq(weight: Tensor, symmetric: bool = True) -> Packed:
    codes, scales, zeros = integers(weight, 32, symmetric)
    tensors = {
        ".qweight": words(codes).T,
        ".qzeros": words(zeros.T - 1),
        ".scales": scales.T,
        ".g_idx": torch.arange(weight.shape[1], dtype=torch.int32) // 32,
    }
    return tensors, of_integers(codes, scales, zeros)


def packed(weight: Tensor, group: int | None = 32, symmetric: bool = True) -> Packed:
    codes, scales, zeros = integers(weight, group or weight.shape[1], symmetric)
    tensors = {
        ".weight_packed": words(codes),
        ".weight_scale": scales,
        ".weight_shape": torch.tensor(weight.shape),
    }
    if not symmetric:
        tensors[".weight_zero_point"] = words(zeros.T).T
    return tensors, of_integers(codes, scales, zeros)


def nvfp4(weight: Tensor) -> Packed:
    groups, scales = numbers(weight, 16)
    factor = scales.max() / 448
    scales = (scales / factor).to(torch.float8_e4m3fn)
    codes, values = of_numbers(groups, scales.float() * factor)
    tensors = {
        ".weight": codes,
        ".weight_scale": scales,
        ".weight_scale_2": factor,
        ".input_scale": torch.tensor(0.1),
    }
    return tensors, values


def mxfp4(weight: Tensor) -> Packed:
    groups, scales = numbers(weight, 32)
    exponents = scales.log2().ceil()
    codes, values = of_numbers(groups, exponents.exp2())
    return {".weight_packed": codes, ".weight_scale": (exponents + 127).to(torch.uint8)}, values


@dataclass(frozen=True)
class FourBits:
    """A section of config.json, a pattern of the modules that it leaves, and how a weight is packed."""

    section: dict[str, Any]
    pack: Callable[[Tensor], Packed]
    kept: str = r"lm_head|.*\.mlp\.gate$"


def compressed(kind: str, form: str, **weights: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": kind, **weights}}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head", r"re:.*mlp\.gate$"],
    }


FOUR_BITS = {
    "awq": FourBits(
        {
            "quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm",
            "modules_to_not_convert": ["mlp.gate.", "lm_head"],
        },
        awq,
    ),
    "gptq": FourBits(
        {
            "quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True,
            "dynamic": {r"-:.*mlp\.gate$": {}},
        },
        gptq,
    ),
    "packed": FourBits(compressed("int", "pack-quantized", strategy="group", group_size=32), packed),
    "packed-zeros": FourBits(
        compressed("int", "pack-quantized", strategy="group", group_size=32, symmetric=False),
        lambda weight: packed(weight, symmetric=False),
    ),
    "packed-rows": FourBits(
        compressed("int", "pack-quantized", strategy="channel"), lambda weight: packed(weight, None)
    ),
    "nvfp4": FourBits(
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "*.mlp.gate"]}, nvfp4
    ),
    "nvfp4-everything": FourBits({"quant_method": "modelopt", "quant_algo": "NVFP4"}, nvfp4, "nothing"),
    "mxfp4-packed": FourBits(
        compressed("float", "mxfp4-pack-quantized", strategy="group", group_size=32), mxfp4
    ),
}  # fmt: skip


def pack_files(directory: Path, layout: FourBits) -> dict[str, Tensor]:
    """Rewrites a checkpoint and its config.json; returns its values in fp32."""
    out, values = {}, {}
    for name, tensor in load_file(directory / "model.safetensors").items():
        module = name.removesuffix(".weight")
        values[name] = tensor.float()
        if tensor.ndim != 2 or "embed" in name or re.match(layout.kept, module):
            out[name] = tensor
            continue
        tensors, values[name] = layout.pack(tensor)
        out |= {module + suffix: part.contiguous() for suffix, part in tensors.items()}
    save_file(out, directory / "model.safetensors", {"format": "pt"})
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": layout.section}))
    return values
