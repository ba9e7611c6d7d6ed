"""A small Llama's description, from which tests derive others."""

from __future__ import annotations

from typing import Any

from gpu_backend.models.description import Experts, Model
from gpu_backend.models.registry import describe

SMALL: dict[str, Any] = {
    "n_layers": 1,
    "hidden": 512,
    "n_heads": 8,
    "n_kv_heads": 2,
    "head_dim": 64,
    "intermediate": 512,
    "vocab_size": 1000,
    "max_context": 64,
    "norm_eps": 1e-5,
    "dtype": "bfloat16",
    "qk_norm": False,
    "tied_head": False,
    "eos_ids": (),
    "experts": None,
}
KEYS = {
    "n_layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "intermediate": "intermediate_size",
    "vocab_size": "vocab_size",
    "max_context": "max_position_embeddings",
    "norm_eps": "rms_norm_eps",
    "dtype": "dtype",
    "tied_head": "tie_word_embeddings",
}


def model_config(**changes: Any) -> Model:
    """The model of SMALL, but for `changes`: a Llama, with `qk_norm` a Qwen3, with `experts` one of its
    mixtures."""
    unknown = changes.keys() - SMALL.keys()
    assert not unknown, f"SMALL has no {unknown}"
    values = {**SMALL, **changes}
    raw = {key: values[name] for name, key in KEYS.items()}
    raw["architectures"] = ["Qwen3ForCausalLM" if values["qk_norm"] else "LlamaForCausalLM"]
    raw["eos_token_id"] = list(values["eos_ids"])
    experts: Experts | None = values["experts"]
    if experts is not None:
        raw |= {
            "architectures": ["Qwen3MoeForCausalLM"],
            "num_experts": experts.count,
            "num_experts_per_tok": experts.per_token,
            "moe_intermediate_size": experts.intermediate,
            "norm_topk_prob": experts.renormalise,
        }
    return describe(raw)
