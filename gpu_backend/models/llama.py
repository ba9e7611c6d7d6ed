"""Llama, and families that are Llama by another name: Mistral, Ministral."""

from __future__ import annotations

from gpu_backend.models.decoder import Style, all_layers, decoder, head_dim_of, layer_types, window_of
from gpu_backend.models.description import Model
from gpu_backend.models.fields import Fields
from gpu_backend.models.rope import Rope, read_rope

PLAIN = Style()


def rope_of(fields: Fields, default_theta: float = 10000.0) -> Rope:
    """The rotation that all layers share."""
    rope = fields.section("rope_parameters" if "rope_parameters" in fields else "rope_scaling")
    context = fields.count("max_position_embeddings")
    return read_rope(fields, rope, head_dim_of(fields), context, default_theta)


def llama(fields: Fields) -> Model:
    """LlamaForCausalLM. Keys that are missing are as in transformers' LlamaConfig."""
    fields = fields.defaulted(rms_norm_eps=1e-6, max_position_embeddings=2048)
    fields.only("attention_bias", False)
    fields.only("mlp_bias", False)
    return decoder(fields, Style(), all_layers(fields, rope_of(fields)), all_layers(fields, None))


def mistral(fields: Fields, style: Style = PLAIN) -> Model:
    """MistralForCausalLM: all layers have one window, or none (MistralConfig's default is 4096)."""
    fields = fields.defaulted(
        rms_norm_eps=1e-6, max_position_embeddings=131072, num_key_value_heads=8, sliding_window=4096
    )
    return decoder(fields, style, all_layers(fields, rope_of(fields)), all_layers(fields, window_of(fields)))


def ministral(fields: Fields) -> Model:
    """MinistralForCausalLM: Mistral whose layers say themselves whether they have a window."""
    fields = fields.defaulted(
        rms_norm_eps=1e-6, max_position_embeddings=131072, num_key_value_heads=8, sliding_window=4096
    )
    window = window_of(fields)
    sliding = layer_types(fields, lambda layer: True)
    windows = [window if slides else None for slides in sliding]
    return decoder(fields, Style(), all_layers(fields, rope_of(fields)), windows)
