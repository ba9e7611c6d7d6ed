"""What the blocks of the decoder kernel tell each other (kernels/decoder/arguments.h)."""

from __future__ import annotations

from gpu_backend.cuda.kernels import DECODER_TILE, decoder_group
from gpu_backend.decoder_abi import DECODER_TOKENS
from gpu_backend.models.description import Model


def exchange_parts(config: Model, blocks: int) -> dict[str, int]:
    """Bytes of what a layer's exchange holds, in order: two norms' squares and normed, then the rest."""
    tokens, halves = DECODER_TOKENS, 2 * DECODER_TOKENS
    norm = {"squares": 4 * tokens * (config.hidden // DECODER_TILE), "normed": halves * config.hidden}
    return norm | {
        "second norm": sum(norm.values()),
        "qkv": halves * config.qkv_width,
        "attention": halves * config.attention_width,
        "product": halves * config.intermediate,
        "parts": 4 * blocks * decoder_group(config) * (config.head_dim + 4),
    }


def exchange_bytes(config: Model, blocks: int) -> int:
    """Of all layers and the head, for so many blocks."""
    return (config.n_layers + 1) * sum(exchange_parts(config, blocks).values())
