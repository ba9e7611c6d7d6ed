"""Small models with random weights, written by transformers and laid out as published checkpoints are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Ministral3Config,
    Ministral3ForCausalLM,
    MinistralConfig,
    MinistralForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
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
LLAMA: dict[str, Any] = {**SIZES, "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16"}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
DYNAMIC_ROPE = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}

MINISTRAL3_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 16.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.3,
}


def longrope(pairs: int, original_context: int) -> dict[str, Any]:
    """Phi-4-mini's kind of rotation, for a model that turns so many pairs of dimensions."""
    return {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0 + 0.1 * i for i in range(pairs)],
        "long_factor": [1.5 + 0.5 * i for i in range(pairs)],
        "original_max_position_embeddings": original_context,
    }


EXPERTS: dict[str, Any] = {
    "head_dim": 32,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 40,
    "norm_topk_prob": True,
}
GEMMA: dict[str, Any] = {
    "head_dim": 32,
    "sliding_window": 24,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "query_pre_attn_scalar": 20,
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
}
GPT_OSS: dict[str, Any] = {
    "head_dim": 64,
    "intermediate_size": 40,
    "num_local_experts": 8,
    "num_experts_per_tok": 3,
    "sliding_window": 24,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 150000.0,
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 32,
    },
}
FAMILIES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM, GEMMA),
    "gpt-oss": (GptOssConfig, GptOssForCausalLM, GPT_OSS),
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "ministral": (
        MinistralConfig,
        MinistralForCausalLM,
        {
            "head_dim": 16,
            "sliding_window": 24,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        },
    ),
    "ministral3": (
        Ministral3Config,
        Ministral3ForCausalLM,
        {"head_dim": 32, "rope_parameters": MINISTRAL3_ROPE},
    ),
    "mistral": (MistralConfig, MistralForCausalLM, {"sliding_window": None}),
    "phi3": (Phi3Config, Phi3ForCausalLM, {"pad_token_id": 0}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
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
    middle = 0.0 if family == "gemma3" else 1.0  # of a norm's weights, which Gemma adds 1 to
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.copy_(middle + 0.2 * torch.randn_like(parameter))  # norms that are not all one
            elif name.endswith("gate_up_proj_bias"):
                parameter.copy_(4.0 * torch.randn_like(parameter))  # some are clamped
            elif name.endswith((".bias", "_bias", ".sinks")):
                parameter.copy_(0.5 * torch.randn_like(parameter))
            else:
                parameter.mul_(4.0)  # attention that is far from uniform
    model.to(dtype).save_pretrained(directory)
    # Read back: converting the model in place would have rounded its rotation table too.
    oracle: PreTrainedModel = type(model).from_pretrained(directory, dtype=torch.float32).eval()
    if family == "gemma3":  # transformers rounds the embedding's scale to the type that it computes in
        scale = oracle.model.embed_tokens.embed_scale
        scale.copy_(scale.to(dtype))
    return oracle


def as_published(directory: Path) -> None:
    """Rewrites a config.json of transformers 5 in the form of before, which most published models have."""
    path = directory / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    if "full_attention" in rope:
        local, rope = rope["sliding_attention"], rope["full_attention"]
        config["rope_local_base_freq"] = local["rope_theta"]
        config.pop("layer_types")
        config["sliding_window_pattern"] = 2
        config.pop("_sliding_window_pattern", None)
    config["rope_theta"] = rope.pop("rope_theta")
    if (partial := rope.pop("partial_rotary_factor", None)) is not None:
        config["partial_rotary_factor"] = partial
    if rope["rope_type"] == "longrope":
        config["original_max_position_embeddings"] = rope.pop("original_max_position_embeddings")
        rope["type"] = rope.pop("rope_type")
    config["rope_scaling"] = None if rope.get("rope_type") == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config))


def as_gemma3_conditional(directory: Path) -> None:
    """Rewrites a text model as gemma-3-4b-it and its larger sisters are published: beside a part for
    images."""
    _beside_images(directory, "Gemma3ForConditionalGeneration")


def as_mistral3_conditional(directory: Path) -> None:
    """Rewrites a text model as Ministral-3-8B and its sisters are published: beside a part for images."""
    _beside_images(directory, "Mistral3ForConditionalGeneration")


def _beside_images(directory: Path, architecture: str) -> None:
    path = directory / "config.json"
    text = json.loads(path.read_text())
    dtype = text.pop("torch_dtype", None) or text.pop("dtype")
    outer = {"architectures": [architecture], "torch_dtype": dtype}
    if "quantization_config" in text:
        outer["quantization_config"] = text.pop("quantization_config")
    outer |= {"vision_config": {"hidden_size": 8}, "text_config": text}
    path.write_text(json.dumps(outer))
    tensors = load_file(directory / "model.safetensors")
    tensors = {f"language_model.{name}": tensor for name, tensor in tensors.items()}
    tensors["vision_tower.vision_model.post_layernorm.weight"] = torch.zeros(8)
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})
