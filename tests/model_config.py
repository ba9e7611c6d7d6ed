"""A small Llama's description, from which tests derive others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_backend.model.config import ModelConfig

SMALL = ModelConfig(
    architecture="LlamaForCausalLM",
    n_layers=1,
    hidden=512,
    n_heads=8,
    n_kv_heads=2,
    head_dim=64,
    intermediate=512,
    vocab_size=1000,
    max_context=64,
    norm_eps=1e-5,
    rope_theta=10000.0,
    rope_scaling=None,
    qk_norm=False,
    tied_head=False,
    dtype="bfloat16",
    eos_ids=(),
)


def model_config(**changes: Any) -> ModelConfig:
    """SMALL, but for `changes`."""
    return replace(SMALL, **changes)
