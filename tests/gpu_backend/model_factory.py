"""Small models with random weights, written by transformers as users' checkpoints are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

SIZES: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


EXPERTS: dict[str, Any] = {
    "head_dim": 32,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 40,
    "norm_topk_prob": True,
}
FAMILIES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "phi3": (Phi3Config, Phi3ForCausalLM, {"pad_token_id": 0}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 32}),
    "qwen3-moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM, EXPERTS),
}


def make_model(
    directory: Path, family: str, dtype: torch.dtype = torch.float32, **changes: Any
) -> PreTrainedModel:
    """Saves a model of one of FAMILIES and of SIZES with `changes`; returns it in fp32 as the oracle."""
    torch.manual_seed(0)
    make_config, make, defaults = FAMILIES[family]
    model: PreTrainedModel = make(make_config(**{**SIZES, **defaults, **changes}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.copy_(1 + 0.2 * torch.randn_like(parameter))  # norms that are not all one
            else:
                parameter.mul_(4.0)  # attention that is far from uniform
    model.to(dtype).save_pretrained(directory)
    # Read back: converting the model in place would have rounded its rotation table too.
    return type(model).from_pretrained(directory, dtype=torch.float32).eval()
