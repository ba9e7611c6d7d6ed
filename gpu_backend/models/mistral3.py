"""Ministral 3, and the text part of Mistral 3: Mistral whose queries grow with their position."""

from __future__ import annotations

from dataclasses import replace

from gpu_backend.models.decoder import Style, all_layers, decoder, window_of
from gpu_backend.models.description import Model
from gpu_backend.models.fields import Fields, UnsupportedModel
from gpu_backend.models.llama import PLAIN, mistral, rope_of
from gpu_backend.models.rope import QueryGrowth, Rope
from ringbuffer.model_file import shown

DEFAULTS = {
    "vocab_size": 131072,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 34,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-5,
}
ROPE = {
    "rope_type": "yarn",
    "rope_theta": 1000000.0,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}
# The second is transformers 5's own, which it writes where it is not asked for the published one.
WITH_IMAGES = Style(prefix="language_model.", other_prefixes=("model.language_model.",))


def ministral3(fields: Fields, style: Style = PLAIN) -> Model:
    """Ministral3ForCausalLM. Keys that are missing are as in transformers' Ministral3Config."""
    fields = fields.defaulted(**DEFAULTS)
    if "rope_parameters" not in fields and "rope_scaling" not in fields:
        fields = Fields({**fields.raw, "rope_parameters": ROPE})
    windows = all_layers(fields, window_of(fields))
    return decoder(fields, style, all_layers(fields, _growing(fields)), windows)


def mistral3_conditional(fields: Fields) -> Model:
    """Mistral3ForConditionalGeneration, which takes images too: its text part, and nothing but text is
    served. The text part is Mistral (Mistral Small 3.1 and 3.2) or Ministral 3."""
    text = fields.section("text_config")
    outer = {key: fields.raw[key] for key in ("architectures", "dtype", "torch_dtype") if key in fields}
    tied = fields.flag("tie_word_embeddings", False)
    outer["tie_word_embeddings"] = text.flag("tie_word_embeddings", tied)
    kind = text.text("model_type", "mistral")
    if kind not in TEXT_PARTS:
        raise UnsupportedModel(
            f"config.json: text_config: model_type: {shown(kind)} is not supported, only "
            + ", ".join(map(repr, TEXT_PARTS))
        )
    return TEXT_PARTS[kind](Fields({**text.raw, **outer}), WITH_IMAGES)


TEXT_PARTS = {"mistral": mistral, "ministral3": ministral3}


def _growing(fields: Fields) -> Rope:
    """The rotation, and how queries grow, which the same object of config.json says."""
    rope = rope_of(fields)
    section = fields.section("rope_parameters" if "rope_parameters" in fields else "rope_scaling")
    beta = section.number("llama_4_scaling_beta", 0.0)
    if beta == 0.0:
        return rope
    return replace(rope, growth=QueryGrowth(beta, section.count("original_max_position_embeddings")))
