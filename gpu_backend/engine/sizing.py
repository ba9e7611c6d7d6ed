"""How much GPU memory a model takes, and how many KV pages fit beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpu_backend.abi import StepKind
from gpu_backend.cuda.kernels import decode_group
from gpu_backend.engine.base import Shape
from gpu_backend.model.config import ModelConfig
from gpu_backend.model.weights import model_weights

HALF_BYTES = 2
MIN_SPLIT = 64  # kMinSplit of kernels/ops/attention_decode.h
MAX_SPLITS = 64
BLOCKS_PER_MULTIPROCESSOR = 4  # what decode attention aims to fill the GPU with
RESERVE_BYTES = 1 << 30  # graphs (0.5 MB each), modules, the GEMM library and its workspace


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def bytes_per_page(config: ModelConfig, page_size: int) -> int:
    """Keys and values of `page_size` tokens, all layers."""
    return 2 * HALF_BYTES * config.n_layers * config.n_kv_heads * page_size * config.head_dim


def decode_splits(config: ModelConfig, lanes: int, max_context: int, n_multiprocessors: int) -> int:
    """Blocks among which decode attention splits a row's keys: enough to fill the GPU with `lanes` rows."""
    ratio = config.n_heads // config.n_kv_heads
    blocks = lanes * config.n_kv_heads * ceil_div(ratio, decode_group(config.n_heads, config.n_kv_heads))
    wanted = ceil_div(BLOCKS_PER_MULTIPROCESSOR * n_multiprocessors, blocks)
    return max(1, min(wanted, MAX_SPLITS, ceil_div(max_context, MIN_SPLIT)))


def activation_bytes(
    config: ModelConfig, shapes: Sequence[Shape], max_context: int, n_multiprocessors: int
) -> dict[str, int]:
    """Bytes of each buffer of native_step.Activations, for the largest shape."""
    tokens = max(shape.tokens for shape in shapes)
    lanes = max(shape.lanes for shape in shapes)
    decode = [shape.lanes for shape in shapes if shape.kind == StepKind.DECODE]
    partials = max(n * decode_splits(config, n, max_context, n_multiprocessors) for n in decode)
    return {
        "residual": 4 * tokens * config.hidden,
        "normed": HALF_BYTES * tokens * config.hidden,
        "qkv": HALF_BYTES * tokens * (config.n_heads + 2 * config.n_kv_heads) * config.head_dim,
        "attention": HALF_BYTES * tokens * config.n_heads * config.head_dim,
        "gate_up": HALF_BYTES * tokens * 2 * config.intermediate,
        "product": HALF_BYTES * tokens * config.intermediate,
        "gathered": HALF_BYTES * lanes * config.hidden,
        "logits": 4 * lanes * config.vocab_size,
        "partial": 4 * partials * config.n_heads * (config.head_dim + 2),
        "arrivals": 4 * max(decode) * config.n_heads,
    }


def weight_bytes(config: ModelConfig) -> int:
    """All weights in the engine's half type."""
    weights = model_weights(config)
    every = [weights.embed, weights.final_norm, *(weight for layer in weights.layers for _, weight in layer)]
    every += [weights.head] if weights.head else []
    return HALF_BYTES * sum(math.prod(weight.shape) for weight in every)


def pages_that_fit(
    config: ModelConfig,
    page_size: int,
    shapes: Sequence[Shape],
    max_context: int,
    free_bytes: int,
    n_multiprocessors: int,
    fraction: float = 0.9,
) -> int:
    """KV pages that fit into `fraction` of `free_bytes` beside weights and activations.

    Raises ValueError if that is not even one page.
    """
    sizes = activation_bytes(config, shapes, max_context, n_multiprocessors)
    used = weight_bytes(config) + sum(sizes.values()) + RESERVE_BYTES
    pages = (int(fraction * free_bytes) - used) // bytes_per_page(config, page_size)
    if pages < 1:
        raise ValueError(
            f"the model needs {used / 1e9:.1f} GB before its first KV page, and {fraction:.0%} of the free "
            f"{free_bytes / 1e9:.1f} GB is less"
        )
    return pages
