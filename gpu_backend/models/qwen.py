"""Qwen2, Qwen2.5 and its distillations, Qwen3, and Qwen3's mixtures of experts."""

from __future__ import annotations

from dataclasses import replace

from gpu_backend.kernel_abi.routing import MAX_EXPERTS
from gpu_backend.models.decoder import Style, all_layers, decoder, layer_types, window_of
from gpu_backend.models.description import Experts, Model
from gpu_backend.models.fields import Fields, UnsupportedModel
from gpu_backend.models.llama import rope_of
from ringbuffer.model_file import shown, whole

DEFAULTS = {"rms_norm_eps": 1e-6, "max_position_embeddings": 32768, "sliding_window": 4096}


def _windows(fields: Fields) -> list[int | None]:
    """The layers from max_window_layers on have a window, if use_sliding_window says so."""
    window = window_of(fields) if fields.flag("use_sliding_window", False) else None
    first = fields.limit("max_window_layers", 28) if fields.raw.get("max_window_layers") != 0 else 0
    sliding = layer_types(fields, lambda layer: window is not None and layer >= first)
    return [window if slides else None for slides in sliding]


def qwen2(fields: Fields) -> Model:
    """Qwen2ForCausalLM: Llama with a bias for queries, keys and values."""
    fields = fields.defaulted(**DEFAULTS, num_key_value_heads=32)
    return decoder(fields, Style(qkv_bias=True), all_layers(fields, rope_of(fields)), _windows(fields))


def qwen3(fields: Fields) -> Model:
    """Qwen3ForCausalLM: Llama with a norm for each head's queries and keys."""
    fields = fields.defaulted(**DEFAULTS, num_key_value_heads=32, head_dim=128)
    fields.only("attention_bias", False)
    return decoder(fields, Style(qk_norm=True), all_layers(fields, rope_of(fields)), _windows(fields))


def qwen3_moe(fields: Fields) -> Model:
    """Qwen3MoeForCausalLM: Qwen3 whose layers have experts, but for those that config.json makes ordinary
    ones."""
    fields = fields.defaulted(**DEFAULTS, num_key_value_heads=4, norm_topk_prob=False, decoder_sparse_step=1)
    fields.only("attention_bias", False)
    fields.only("use_sliding_window", False)
    dense = {whole(layer) for layer in fields.items("mlp_only_layers")}
    if None in dense:
        raise UnsupportedModel(
            "config.json: mlp_only_layers must be a list of integers, found "
            f"{shown(fields.raw['mlp_only_layers'])}"
        )
    step = fields.count("decoder_sparse_step")
    # transformers 5 writes num_local_experts; published checkpoints have num_experts.
    count = "num_local_experts" if "num_local_experts" in fields else "num_experts"
    experts = Experts(
        count=fields.count(count, most=MAX_EXPERTS),
        per_token=fields.count("num_experts_per_tok"),
        intermediate=fields.count("moe_intermediate_size"),
        renormalise=fields.flag("norm_topk_prob", False),
    )
    model = decoder(
        fields,
        Style(qk_norm=True),
        all_layers(fields, rope_of(fields)),
        all_layers(fields, None),
        experts,
        has_experts=lambda layer: layer not in dense and (layer + 1) % step == 0,
    )
    return model if any(layer.router for layer in model.layers) else replace(model, experts=None)
