"""config.json of small models that no kernel's sizes fit exactly."""

from __future__ import annotations

from typing import Any

DENSE: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "num_hidden_layers": 3,
    "hidden_size": 256,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 1000,
    "vocab_size": 1001,
    "max_position_embeddings": 2048,
    "dtype": "bfloat16",
}
EXPERTS: dict[str, Any] = {
    **DENSE,
    "architectures": ["Qwen3MoeForCausalLM"],
    "hidden_size": 512,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 64,
}
