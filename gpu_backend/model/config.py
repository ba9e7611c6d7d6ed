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


@dataclass(frozen=True)
class Family:
    """How an architecture differs from Llama."""

    qk_norm: bool = False  # RMSNorm of each head's queries and keys
    fused: bool = False  # the checkpoint has q, k, v as one tensor, and gate, up
    experts: bool = False  # a mixture of experts in place of the MLP


ARCHITECTURES = {
    "LlamaForCausalLM": Family(),
    "Phi3ForCausalLM": Family(fused=True),
    "Qwen3ForCausalLM": Family(qk_norm=True),
    "Qwen3MoeForCausalLM": Family(qk_norm=True, experts=True),
}
DTYPES = ("bfloat16", "float16", "float32")
MAX_EXPERTS = 256  # a warp of the router holds 8 a lane
MAX_EXPERTS_PER_TOKEN = 32  # the router's warp hands them to one lane each
MAX_VOCAB = 1 << 19  # the sampler sums as many 40-bit weights in 64 bits, which leaves room


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
class Experts:
    """A mixture of experts: a token takes the `per_token` of `count` MLPs that its router scores highest."""

    count: int
    per_token: int
    intermediate: int  # of one expert
    renormalise: bool  # the weights of a token's experts sum to 1
    dense_layers: frozenset[int]  # layers with an ordinary MLP of ModelConfig.intermediate


@dataclass(frozen=True)
class ModelConfig:
    """A decoder-only transformer: RMSNorm, RoPE, grouped-query attention, SwiGLU (dense or MoE), no biases.

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
    fused: bool = False
    experts: Experts | None = None

    @property
    def attention_width(self) -> int:
        """Elements of a token's queries, and of what attention makes of them."""
        return self.n_heads * self.head_dim

    @property
    def qkv_width(self) -> int:
        """Elements of a token's queries, keys and values."""
        return (self.n_heads + 2 * self.n_kv_heads) * self.head_dim

    def has_experts(self, layer: int) -> bool:
        return self.experts is not None and layer not in self.experts.dense_layers

    @property
    def any_dense(self) -> bool:
        """Whether a layer has an ordinary MLP."""
        return not all(self.has_experts(layer) for layer in range(self.n_layers))

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
    family = ARCHITECTURES[architecture]
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}  # transformers 5, and before
    if not isinstance(rope, dict):
        raise UnsupportedModel(f"config.json: rope_scaling must be an object, found {rope!r}")
    _refuse_variants({**raw, **{key: rope[key] for key in rope if key == "partial_rotary_factor"}})
    if family.fused:
        _refuse_window(raw)
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
        qk_norm=family.qk_norm,
        tied_head=bool(raw.get("tie_word_embeddings", False)),
        dtype=str(raw.get("dtype") or raw.get("torch_dtype") or "float32"),
        eos_ids=eos_ids,
        fused=family.fused,
        experts=_experts(raw) if family.experts else None,
    )


def _experts(raw: Mapping[str, Any]) -> Experts:
    count = "num_experts" if "num_experts" in raw else "num_local_experts"  # transformers 5 writes the latter
    layers = range(_count(raw, "num_hidden_layers"))
    step, dense = _count(raw, "decoder_sparse_step", 1), raw.get("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(isinstance(layer, int) for layer in dense):
        raise UnsupportedModel(f"config.json: mlp_only_layers must be a list of integers, found {dense!r}")
    return Experts(
        count=_count(raw, count),
        per_token=_count(raw, "num_experts_per_tok"),
        intermediate=_count(raw, "moe_intermediate_size"),
        renormalise=bool(raw.get("norm_topk_prob", False)),
        dense_layers=frozenset(i for i in layers if i in dense or (i + 1) % step),
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


def _refuse_window(raw: Mapping[str, Any]) -> None:
    """A window that is as long as the context hides nothing."""
    context = _count(raw, "max_position_embeddings")
    window = _count(raw, "sliding_window", context)
    if window < context:
        raise UnsupportedModel(f"sliding_window: {window} is not supported: it is shorter than the context")


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
            config.head_dim % 16 == 0 and config.head_dim <= 256,
            "head_dim must be a multiple of 16, at most 256",
        ),
        (config.hidden % 8 == 0, "hidden_size must be a multiple of 8"),
        (config.intermediate % 8 == 0, "intermediate_size must be a multiple of 8"),
        *_expert_rules(config.experts),
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


def _expert_rules(experts: Experts | None) -> list[tuple[bool, str]]:
    if experts is None:
        return []
    most = min(experts.count, MAX_EXPERTS_PER_TOKEN)
    return [
        (experts.count <= MAX_EXPERTS, f"num_experts must be at most {MAX_EXPERTS}"),
        (experts.per_token <= most, f"num_experts_per_tok must be at most {most}"),
        (experts.intermediate % 8 == 0, "moe_intermediate_size must be a multiple of 8"),
    ]


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
