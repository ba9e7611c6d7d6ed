"""Phi-3 and Phi-4: Llama with fused tensors, windows, and in Phi-4-mini a partial rotation and longrope."""

from __future__ import annotations

from gpu_backend.models.decoder import Style, all_layers, decoder, head_dim_of, window_of
from gpu_backend.models.description import Model
from gpu_backend.models.fields import Fields
from gpu_backend.models.rope import read_rope

LONGROPE = {"su": "longrope", "yarn": "longrope"}  # names of before it was called so


def phi3(fields: Fields) -> Model:
    """Phi3ForCausalLM. Keys that are missing are as in transformers' Phi3Config."""
    fields = fields.defaulted(
        rms_norm_eps=1e-5, max_position_embeddings=4096, original_max_position_embeddings=4096
    )
    rope = fields.section("rope_parameters" if "rope_parameters" in fields else "rope_scaling")
    context = fields.count("max_position_embeddings")
    turned = read_rope(fields, rope, head_dim_of(fields), context, types=LONGROPE)
    windows = all_layers(fields, window_of(fields))
    return decoder(fields, Style(fused=True), all_layers(fields, turned), windows)
