"""Gemma 3, its text part: norms in front of and behind attention and MLP, local and global layers, GeGLU."""

from __future__ import annotations

import math
from dataclasses import replace

from gpu_backend.models.decoder import Style, decoder, head_dim_of, layer_types, window_of
from gpu_backend.models.description import Model
from gpu_backend.models.fields import Fields
from gpu_backend.models.half import round_to
from gpu_backend.models.rope import Rope, read_rope

DEFAULTS = {
    "vocab_size": 262208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
}


def gemma3(fields: Fields, prefix: str = "", other_prefixes: tuple[str, ...] = ()) -> Model:
    """Gemma3ForCausalLM. Keys that are missing are as in transformers' Gemma3TextConfig."""
    fields = fields.defaulted(**DEFAULTS)
    fields.only("attention_bias", False)
    fields.only("attn_logit_softcapping")
    fields.only("final_logit_softcapping")
    fields.only("use_bidirectional_attention", False)
    pattern = fields.count("sliding_window_pattern")
    sliding = layer_types(fields, lambda layer: (layer + 1) % pattern != 0)
    window = window_of(fields)
    local, everywhere = _ropes(fields)
    style = Style(
        qk_norm=True,
        sandwich_norms=True,
        norm_offset=1.0,
        # transformers rounds the scale to the type of the embedding, with which the models were trained.
        embed_scale=round_to(
            math.sqrt(fields.count("hidden_size")),
            str(fields.raw.get("dtype") or fields.raw.get("torch_dtype") or "float32"),
        ),
        activation_key="hidden_activation",
        prefix=prefix,
        other_prefixes=other_prefixes,
    )
    ropes = [local if slides else everywhere for slides in sliding]
    return decoder(fields, style, ropes, [window if slides else None for slides in sliding])


def gemma3_conditional(fields: Fields) -> Model:
    """Gemma3ForConditionalGeneration, which takes images too: its text part, and nothing but text is
    served. Whether the head is tied is not the text part's to say, as in transformers."""
    text = fields.section("text_config")
    outer = {key: fields.raw[key] for key in ("architectures", "dtype", "torch_dtype") if key in fields}
    outer["tie_word_embeddings"] = fields.flag("tie_word_embeddings", True)
    # The second is transformers 5's own, which it writes where it is not asked for the published one.
    return gemma3(Fields({**text.raw, **outer}), "language_model.", ("model.language_model.",))


def _ropes(fields: Fields) -> tuple[Rope, Rope]:
    """Of layers with a window, and of the others."""
    by_type = fields.section("rope_parameters")
    everywhere = by_type.section("full_attention")
    if "full_attention" not in by_type:  # as written before transformers 5
        everywhere = fields.section("rope_scaling").defaulted(rope_theta=fields.number("rope_theta", 1e6))
    local = by_type.section("sliding_attention").defaulted(
        rope_theta=fields.number("rope_local_base_freq", 1e4)
    )
    head_dim, context = head_dim_of(fields), fields.count("max_position_embeddings")
    score_scale = math.sqrt(head_dim / fields.positive("query_pre_attn_scalar"))
    bare = Fields({})  # keys of the model belong to one of the two alone
    return (
        replace(read_rope(bare, local, head_dim, context), score_scale=score_scale),
        replace(read_rope(bare, everywhere, head_dim, context, 1e6), score_scale=score_scale),
    )
