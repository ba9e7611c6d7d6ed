"""Rotations against transformers' own functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from model_factory import DYNAMIC_ROPE, LINEAR_ROPE, LLAMA3_ROPE, SIZES, YARN_ROPE, longrope
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from gpu_backend.models.fields import Fields
from gpu_backend.models.registry import describe
from gpu_backend.models.rope import Rope, read_rope

HEAD_DIM = 128


def read(rope: dict[str, Any], **changes: Any) -> Rope:
    fields = {**SIZES, "head_dim": HEAD_DIM, **changes}
    return read_rope(Fields(fields), Fields(rope), HEAD_DIM, fields["max_position_embeddings"])


def oracle(rope: dict[str, Any], context: int) -> tuple[Any, float]:
    config = LlamaConfig(**{**SIZES, "head_dim": HEAD_DIM, "rope_parameters": dict(rope)})
    if rope["rope_type"] == "default":
        return LlamaRotaryEmbedding(config).inv_freq, 1.0
    frequencies, magnitude = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, None, seq_len=context)
    return frequencies, magnitude


@pytest.mark.parametrize(
    ("rope", "context"),
    [
        ({"rope_type": "default", "rope_theta": 1e6}, 512),
        (LLAMA3_ROPE, 512),
        (LINEAR_ROPE, 512),
        (DYNAMIC_ROPE, 512),
        (DYNAMIC_ROPE, 1500),
        (YARN_ROPE, 512),
        ({**YARN_ROPE, "beta_fast": 16, "beta_slow": 2, "truncate": False}, 512),
        ({**YARN_ROPE, "attention_factor": 0.7}, 512),
        ({**YARN_ROPE, "mscale": 0.707, "mscale_all_dim": 1.0}, 512),
        (longrope(HEAD_DIM // 2, 128), 128),
        (longrope(HEAD_DIM // 2, 128), 129),
        ({**longrope(HEAD_DIM // 2, 128), "factor": 16.0}, 512),
    ],
)
def test_frequencies_and_magnitude_are_those_of_transformers(rope: dict[str, Any], context: int) -> None:
    frequencies, magnitude = oracle(rope, context)
    table = read(rope).table(HEAD_DIM, context)
    np.testing.assert_allclose(table[:, 0], frequencies.numpy(), rtol=2e-6)
    np.testing.assert_allclose(table[:, 1], magnitude, rtol=1e-6)


def test_vllms_key_multiplies_the_usual_magnitude() -> None:
    """As R1-0528-Qwen3-8B is published: its factor undoes what YaRN would multiply by."""
    rope = {**YARN_ROPE, "attn_factor": 0.8782488562869419}
    np.testing.assert_allclose(read(rope).table(HEAD_DIM, 512)[:, 1], 1.0, rtol=1e-6)


def test_a_partial_rotation_pairs_the_dimensions_that_the_checkpoint_pairs() -> None:
    """Scores from reordered queries and keys, turned as the kernels do, are those of the checkpoint's
    order."""
    head_dim, position = 32, np.array([3, 11])
    rope = read_rope(Fields({"partial_rotary_factor": 0.75}), Fields({}), head_dim, 512)
    table, order = rope.table(head_dim, 512), rope.head_order(head_dim)
    assert order is not None
    assert sorted(order) == list(range(head_dim))
    vectors = np.random.default_rng(0).normal(size=(2, head_dim))

    def turned(x: Any, frequencies: Any, at: int) -> Any:
        half = len(x) // 2
        cos, sin = np.cos(at * frequencies), np.sin(at * frequencies)
        return np.concatenate([x[:half] * cos - x[half:] * sin, x[half:] * cos + x[:half] * sin])

    theirs = [
        np.concatenate([turned(x[:24], rope.frequencies(), at), x[24:]])
        for x, at in zip(vectors, position, strict=True)
    ]
    ours = [turned(x[list(order)], table[:, 0], at) for x, at in zip(vectors, position, strict=True)]
    np.testing.assert_allclose(ours[0] @ ours[1], theirs[0] @ theirs[1], rtol=1e-6)


def test_gemmas_score_scale_is_a_magnitude_of_queries_and_keys() -> None:
    raw = {**SIZES, "architectures": ["Gemma3ForCausalLM"], "head_dim": 32, "query_pre_attn_scalar": 20}
    for rope in describe(raw).ropes:
        magnitude = rope.table(32, 512)[:, 1].astype(float)
        np.testing.assert_allclose(magnitude**2 / math.sqrt(32), 20**-0.5, rtol=1e-6)
