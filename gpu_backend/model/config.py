"""The model's description: Hugging Face's config.json, checked against what the engines can run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_backend.abi import MAX_EOS

ARCHITECTURES = {"LlamaForCausalLM": False, "Qwen3ForCausalLM": True}  # name -> has q_norm and k_norm
DTYPES = ("bfloat16", "float16", "float32")
MAX_VOCAB = 1 << 18  # the sampler keeps a bit per token in shared memory, and sums as many 40-bit weights


class UnsupportedModel(ValueError):
    """No engine here can run the model, or its config.json is not valid. Says what and why."""


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1's stretching of slow rotations (rope_type "llama3")."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True)
class ModelConfig:
    """A dense decoder-only transformer: RMSNorm, RoPE, grouped-query attention, SwiGLU, no biases.

    Sizes are counts of elements; `max_context` is the trained context in tokens; `dtype` is what the
    checkpoint says it holds, one of DTYPES; `eos_ids` are the ids that end an answer, at most MAX_EOS.
    """

    architecture: str
    n_layers: int
    hidden: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    intermediate: int
    vocab_size: int
    max_context: int
    norm_eps: float
    rope_theta: float
    rope_scaling: Llama3Scaling | None
    qk_norm: bool
    tied_head: bool
    dtype: str
    eos_ids: tuple[int, ...]

    @staticmethod
    def from_directory(directory: Path) -> ModelConfig:
        """Reads config.json and, for the end ids, generation_config.json if it is there.

        Raises UnsupportedModel, and FileNotFoundError when there is no config.json.
        """
        raw = _read_json(directory / "config.json")
        generation = directory / "generation_config.json"
        config = _parse(raw, _eos_ids(_read_json(generation) if generation.exists() else {}, raw))
        _validate(config)
        return config

    def inv_freq(self) -> NDArray[np.float32]:
        """[head_dim / 2] radians per position of each pair of dimensions, in fp32 as transformers does."""
        exponents = np.arange(0, self.head_dim, 2, dtype=np.float32) / np.float32(self.head_dim)
        inv_freq = np.float32(1.0) / np.power(np.float32(self.rope_theta), exponents)
        return inv_freq if self.rope_scaling is None else _stretch(inv_freq, self.rope_scaling)


def _stretch(inv_freq: NDArray[np.float32], scaling: Llama3Scaling) -> NDArray[np.float32]:
    """Divides slow rotations by `factor`, keeps fast ones, and blends in between."""
    wavelength = 2 * math.pi / inv_freq.astype(np.float64)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = np.clip((scaling.original_context / wavelength - low) / (high - low), 0.0, 1.0)
    return (inv_freq * (kept + (1.0 - kept) / scaling.factor)).astype(np.float32)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file; a model directory has a {path.name}") from None
    except ValueError as error:
        raise UnsupportedModel(f"{path}: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise UnsupportedModel(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def _parse(raw: Mapping[str, Any], eos_ids: tuple[int, ...]) -> ModelConfig:
    architecture = _architecture(raw)
    _refuse_variants(raw)
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}  # transformers 5, and before
    if not isinstance(rope, dict):
        raise UnsupportedModel(f"config.json: rope_scaling must be an object, found {rope!r}")
    n_heads, hidden = _count(raw, "num_attention_heads"), _count(raw, "hidden_size")
    return ModelConfig(
        architecture=architecture,
        n_layers=_count(raw, "num_hidden_layers"),
        hidden=hidden,
        n_heads=n_heads,
        n_kv_heads=_count(raw, "num_key_value_heads", n_heads),
        head_dim=_count(raw, "head_dim", hidden // n_heads),
        intermediate=_count(raw, "intermediate_size"),
        vocab_size=_count(raw, "vocab_size"),
        max_context=_count(raw, "max_position_embeddings"),
        norm_eps=_number(raw, "rms_norm_eps", 1e-6),
        rope_theta=_number(raw, "rope_theta", _number(rope, "rope_theta", 10000.0)),
        rope_scaling=_scaling(rope, _count(raw, "max_position_embeddings")),
        qk_norm=ARCHITECTURES[architecture],
        tied_head=bool(raw.get("tie_word_embeddings", False)),
        dtype=str(raw.get("dtype") or raw.get("torch_dtype") or "float32"),
        eos_ids=eos_ids,
    )


def _architecture(raw: Mapping[str, Any]) -> str:
    names = raw.get("architectures") or []
    for name in names:
        if name in ARCHITECTURES:
            return str(name)
    found = ", ".join(map(str, names)) or "none"
    raise UnsupportedModel(f"architectures: {found}; supported are {', '.join(ARCHITECTURES)}")


def _refuse_variants(raw: Mapping[str, Any]) -> None:
    """Options of the supported architectures that change the arithmetic and that no engine implements."""
    for key, neutral in (
        ("hidden_act", "silu"),
        ("attention_bias", False),
        ("mlp_bias", False),
        ("use_sliding_window", False),
        ("quantization_config", None),
        ("partial_rotary_factor", 1.0),
    ):
        if raw.get(key, neutral) not in (neutral, None):
            raise UnsupportedModel(f"{key}: {raw[key]!r} is not supported, only {neutral!r}")
    if any(kind != "full_attention" for kind in raw.get("layer_types") or ()):
        raise UnsupportedModel("layer_types: only full_attention is supported")


def _scaling(rope: Mapping[str, Any], max_context: int) -> Llama3Scaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise UnsupportedModel(f"rope_type: {kind!r} is not supported, only 'default' and 'llama3'")
    scaling = Llama3Scaling(
        factor=_number(rope, "factor"),
        low_freq_factor=_number(rope, "low_freq_factor"),
        high_freq_factor=_number(rope, "high_freq_factor"),
        original_context=_count(rope, "original_max_position_embeddings", max_context),
    )
    if scaling.high_freq_factor <= scaling.low_freq_factor:
        raise UnsupportedModel("rope scaling: high_freq_factor must be larger than low_freq_factor")
    return scaling


def _eos_ids(generation: Mapping[str, Any], raw: Mapping[str, Any]) -> tuple[int, ...]:
    """generation_config.json decides where it says something: it lists the ids that end a chat turn too."""
    value = generation.get("eos_token_id")
    value = raw.get("eos_token_id") if value is None else value
    ids = tuple(value) if isinstance(value, list) else () if value is None else (value,)
    if not all(isinstance(i, int) for i in ids):
        raise UnsupportedModel(f"eos_token_id: expected an integer or a list of integers, found {value!r}")
    return ids


def _validate(config: ModelConfig) -> None:
    """What the kernels rely on. The limits are those of kernels/ops."""
    rules = [
        (
            config.n_heads % config.n_kv_heads == 0,
            "num_attention_heads must be a multiple of num_key_value_heads",
        ),
        (
            config.head_dim % 16 == 0 and config.head_dim <= 128,
            "head_dim must be a multiple of 16, at most 128",
        ),
        (config.hidden % 8 == 0, "hidden_size must be a multiple of 8"),
        (config.intermediate % 8 == 0, "intermediate_size must be a multiple of 8"),
        (config.vocab_size <= MAX_VOCAB, f"vocab_size must be at most {MAX_VOCAB}"),
        (config.norm_eps > 0, "rms_norm_eps must be positive"),
        (config.rope_theta > 0, "rope_theta must be positive"),
        (config.dtype in DTYPES, f"dtype must be one of {', '.join(DTYPES)}, found {config.dtype!r}"),
        (len(config.eos_ids) <= MAX_EOS, f"eos_token_id must name at most {MAX_EOS} ids"),
        (
            all(0 <= i < config.vocab_size for i in config.eos_ids),
            "eos_token_id must lie inside the vocabulary",
        ),
    ]
    for holds, message in rules:
        if not holds:
            raise UnsupportedModel(f"config.json: {message}")


def _count(raw: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = raw.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UnsupportedModel(f"config.json: {key} must be a positive integer, found {value!r}")
    return value


def _number(raw: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = raw.get(key)
    value = default if value is None else value
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise UnsupportedModel(f"config.json: {key} must be a number, found {value!r}")
    return float(value)
