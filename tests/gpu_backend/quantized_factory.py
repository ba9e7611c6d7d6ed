"""Small models in fp8 or in four bits, laid out as published checkpoints are, and the same with their values
in fp32.

oracle = make_quantized(directory, "llama", "compressed-tensors-channel")
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from fourbit_checkpoint import FOUR_BITS, pack_files
from model_factory import as_published, make_model
from quantized_checkpoint import LAYOUTS, quantize_files
from safetensors.torch import save_file
from transformers import PreTrainedModel

# Widths that are no multiples of 128 wherever scales by block allow it.
SIZES: dict[str, dict[str, Any]] = {
    "llama": {"hidden_size": 160, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 32},
    "ministral3": {"hidden_size": 160, "num_attention_heads": 4, "num_key_value_heads": 4},
    "qwen2": {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2},
    "qwen3": {"hidden_size": 160, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32},
    "qwen3-moe": {
        "hidden_size": 128, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32,
        "moe_intermediate_size": 128,
    },
    "phi3": {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4},
}  # fmt: skip


def make_quantized(
    directory: Path,
    family: str,
    layout: str,
    dtype: torch.dtype = torch.bfloat16,
    **changes: Any,
) -> PreTrainedModel:
    """Saves a model of one of SIZES in one of LAYOUTS or FOUR_BITS; returns it with its values in
    fp32 as the oracle."""
    sizes = {"intermediate_size": 256, "num_hidden_layers": 2, **SIZES[family], **changes}
    model = make_model(directory, family, dtype, **sizes)
    plain = directory / "plain"
    model.save_pretrained(plain)
    if layout in FOUR_BITS:
        values = pack_files(directory, FOUR_BITS[layout])
    else:
        values = quantize_files(directory, LAYOUTS[layout])
    save_file(values, plain / "model.safetensors", {"format": "pt"})
    oracle: PreTrainedModel = type(model).from_pretrained(plain, dtype=torch.float32).eval()
    as_published(directory)
    return oracle
