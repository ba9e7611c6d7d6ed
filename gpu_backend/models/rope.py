"""Rotary position embedding (RoPE) as data: how far each pair of dimensions turns per position.

The kernels know one form alone: a table with a frequency and a magnitude for each pair of dimensions
(d, d + head_dim / 2). What families differ in is worked into that table:

- A scaling (llama3, linear, dynamic, yarn, longrope) changes frequencies; yarn and longrope also have a
  factor for cos and sin, which becomes the magnitude.
- Of a partial rotation only the first `dims` dimensions of a head turn. The rows of the query and key
  matrices are loaded in the order of `head_order`, so that the pairs that turn lie where the kernels look
  for them, and the other pairs have the frequency 0. The product of a query and a key does not depend on
  the order of their dimensions.
- Queries alone may grow with their position (QueryGrowth), which is no matter of the table.
- A softmax scale other than 1 / sqrt(head_dim) is a magnitude too, its square root on queries and keys each.

The formulas are those of transformers' modeling_rope_utils.py, in its precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gpu_backend.models.fields import Fields, UnsupportedModel
from ringbuffer.model_file import shown

Frequencies = NDArray[np.float32]
MAX_FACTOR = 1 << 20  # of a scaling: contexts are counted with 20 bits


class Scaling(Protocol):
    """How a model that was trained on short texts turns on long ones."""

    def frequencies(self, rope: Rope, context: int) -> Frequencies:
        """[dims / 2] radians per position where prompt and answer together have at most `context` tokens."""
        ...

    def longest(self, trained: int) -> int:
        """Tokens of a context, where config.json says that the model was trained for so many."""
        ...

    @property
    def magnitude(self) -> float:
        """What cos and sin are multiplied by."""
        ...


@dataclass(frozen=True)
class QueryGrowth:
    """Queries are multiplied by 1 + beta * log(1 + floor(position / context)), `context` in tokens, so that
    attention stays sharp over texts longer than those of training (Llama 4, Ministral 3)."""

    beta: float
    context: int


@dataclass(frozen=True)
class Rope:
    """The rotation of one layer's queries and keys.

    `dims`: the dimensions of a head that turn, an even number. `score_scale`: what attention's scores are
    to be multiplied by, beyond 1 / sqrt(head_dim). `growth`: what queries are multiplied by, None: nothing.
    """

    theta: float
    dims: int
    scaling: Scaling | None = None
    score_scale: float = 1.0
    growth: QueryGrowth | None = None

    def table(self, head_dim: int, context: int) -> NDArray[np.float32]:
        """[head_dim / 2][2] fp32: radians per position, and the magnitude, of each pair of dimensions.

        `context` is the number of tokens that prompt and answer may have together: longrope and dynamic
        choose by it, once for all requests, since cached keys cannot be turned again.
        """
        frequencies = self.frequencies() if self.scaling is None else self.scaling.frequencies(self, context)
        table = np.zeros((head_dim // 2, 2), np.float32)
        table[:, 1] = 1.0
        table[: self.dims // 2, 0] = frequencies
        table[: self.dims // 2, 1] = 1.0 if self.scaling is None else self.scaling.magnitude
        table[:, 1] *= math.sqrt(self.score_scale)
        return table

    def frequencies(self, theta: float | None = None) -> Frequencies:
        """[dims / 2] radians per position without any scaling."""
        return (np.float32(1.0) / self.periods(theta)).astype(np.float32)

    def periods(self, theta: float | None = None) -> NDArray[np.float32]:
        """[dims / 2] positions per radian."""
        exponents = np.arange(0, self.dims, 2, dtype=np.float32) / np.float32(self.dims)
        periods: NDArray[np.float32] = np.power(np.float32(self.theta if theta is None else theta), exponents)
        return periods

    def head_order(self, head_dim: int) -> tuple[int, ...] | None:
        """For each dimension of a head as the kernels see it, the one of the checkpoint; None: the same."""
        if self.dims == head_dim:
            return None
        half, rest = self.dims // 2, list(range(self.dims, head_dim))
        middle = len(rest) // 2
        return (*range(half), *rest[:middle], *range(half, self.dims), *rest[middle:])


class WithinTrained:
    """A scaling whose longer context config.json counts among the trained ones already."""

    def longest(self, trained: int) -> int:
        return trained


@dataclass(frozen=True)
class Llama3Scaling(WithinTrained):
    """Llama 3.1 divides slow rotations by `factor`, keeps fast ones, and blends in between."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int
    magnitude: float = 1.0

    def frequencies(self, rope: Rope, context: int) -> Frequencies:
        inv_freq = rope.frequencies()
        wavelength = 2 * math.pi / inv_freq.astype(np.float64)
        low, high = self.low_freq_factor, self.high_freq_factor
        kept = np.clip((self.original_context / wavelength - low) / (high - low), 0.0, 1.0)
        return (inv_freq * (kept + (1.0 - kept) / self.factor)).astype(np.float32)


@dataclass(frozen=True)
class LinearScaling(WithinTrained):
    """All rotations are `factor` times slower."""

    factor: float
    magnitude: float = 1.0

    def frequencies(self, rope: Rope, context: int) -> Frequencies:
        return rope.frequencies() / np.float32(self.factor)


@dataclass(frozen=True)
class DynamicScaling:
    """NTK scaling: beyond the trained context theta grows with the length.

    transformers computes theta anew as a sequence grows; a server whose keys stay cached takes the
    longest context that it serves, as vLLM does.
    """

    factor: float
    trained_context: int
    magnitude: float = 1.0

    def longest(self, trained: int) -> int:
        return int(self.factor * self.trained_context)

    def frequencies(self, rope: Rope, context: int) -> Frequencies:
        length = max(context, self.trained_context)
        stretch = self.factor * length / self.trained_context - (self.factor - 1)
        return rope.frequencies(rope.theta * stretch ** (rope.dims / (rope.dims - 2)))


@dataclass(frozen=True)
class YarnScaling:
    """YaRN (Peng et al., 2023): slow rotations are divided by `factor`, and a ramp over dimensions blends."""

    factor: float
    original_context: int
    beta_fast: float
    beta_slow: float
    magnitude: float
    truncate: bool = True  # whether the ends of the ramp are whole dimensions

    def longest(self, trained: int) -> int:
        """Qwen's model cards add YaRN to a config.json whose max_position_embeddings stays as it was."""
        return max(trained, int(self.factor * self.original_context))

    def frequencies(self, rope: Rope, context: int) -> Frequencies:
        low, high = self._dimension(rope, self.beta_fast), self._dimension(rope, self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, rope.dims - 1)
        span = high - low if high != low else 0.001
        ramp = np.clip((np.arange(rope.dims // 2, dtype=np.float32) - low) / span, 0, 1).astype(np.float32)
        periods = rope.periods()
        slow, fast = np.float32(1.0) / (np.float32(self.factor) * periods), np.float32(1.0) / periods
        blended: Frequencies = slow * ramp + fast * (1 - ramp)
        return blended.astype(np.float32)

    def _dimension(self, rope: Rope, rotations: float) -> float:
        """Which dimension makes so many rotations within the original context."""
        return (rope.dims * math.log(self.original_context / (rotations * 2 * math.pi))) / (
            2 * math.log(rope.theta)
        )


@dataclass(frozen=True)
class LongRopeScaling(WithinTrained):
    """LongRoPE: a factor for each rotation, one set for contexts as trained, one for longer ones."""

    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    original_context: int
    magnitude: float

    def frequencies(self, rope: Rope, context: int) -> Frequencies:
        factors = self.long_factor if context > self.original_context else self.short_factor
        periods: Frequencies = np.array(factors, np.float32) * rope.periods()
        return (np.float32(1.0) / periods).astype(np.float32)


def read_rope(
    fields: Fields,
    rope: Fields,
    head_dim: int,
    max_context: int,
    default_theta: float = 10000.0,
    types: dict[str, str] | None = None,
) -> Rope:
    """The rotation that config.json describes.

    `fields` are those of the model, `rope` those of its rope_parameters (transformers 5) or rope_scaling
    (before). `types`: what a family calls a known type besides its name. Raises UnsupportedModel.
    """
    theta = rope.number("rope_theta", fields.number("rope_theta", default_theta))
    if theta <= 1:
        raise UnsupportedModel(f"config.json: rope_theta must be larger than 1, found {theta}")
    partial = rope.number("partial_rotary_factor", fields.number("partial_rotary_factor", 1.0))
    dims = int(head_dim * partial)
    if not 0 < dims <= head_dim or dims % 2:
        raise UnsupportedModel(
            f"config.json: partial_rotary_factor {partial} turns {dims} of {head_dim} dimensions; "
            f"it must be an even number of them"
        )
    kind = rope.text("rope_type", rope.text("type", "default"))
    kind = (types or {}).get(kind, kind)
    return Rope(theta, dims, _read_scaling(kind, fields, rope, dims, max_context))


def _read_scaling(kind: str, fields: Fields, rope: Fields, dims: int, max_context: int) -> Scaling | None:
    # Phi-3 keeps the context it was trained with outside of the rope's own object.
    inner = rope.count("original_max_position_embeddings", max_context)
    original = fields.count("original_max_position_embeddings", inner)
    if original < 2:
        raise UnsupportedModel("config.json: original_max_position_embeddings must be at least 2")
    if kind == "default":
        return None
    if kind == "llama3":
        low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
        if high <= low:
            raise UnsupportedModel(
                "config.json: rope scaling: high_freq_factor must be larger than low_freq_factor"
            )
        return Llama3Scaling(_factor(rope), low, high, original)
    if kind == "linear":
        return LinearScaling(_factor(rope))
    if kind == "dynamic":
        return DynamicScaling(_factor(rope), max_context)
    if kind == "yarn":
        return _read_yarn(rope.defaulted_null(factor=max_context / original), original)
    if kind == "longrope":
        return _read_longrope(rope, dims, original, max_context)
    raise UnsupportedModel(
        f"config.json: rope_type: {shown(kind)} is not supported, "
        "only 'default', 'linear', 'dynamic', 'llama3', 'yarn' and 'longrope'"
    )


def _factor(rope: Fields) -> float:
    factor = rope.number("factor")
    if factor < 1.0:
        raise UnsupportedModel(f"config.json: rope scaling: factor must be at least 1, found {factor}")
    if factor > MAX_FACTOR:
        raise UnsupportedModel(
            f"config.json: rope scaling: factor must be at most {MAX_FACTOR}, found {factor}"
        )
    return factor


def _read_yarn(rope: Fields, original: int) -> YarnScaling:
    factor = _factor(rope)

    def stretch(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0

    mscale, all_dims = rope.number("mscale", 0.0), rope.number("mscale_all_dim", 0.0)
    usual = stretch(mscale) / stretch(all_dims) if mscale and all_dims else stretch(1.0)
    # "attn_factor" is vLLM's key, which multiplies what the factor gives; R1-0528-Qwen3-8B has it undo the
    # magnitude. transformers does not know the key.
    usual *= rope.number("attn_factor", 1.0)
    return YarnScaling(
        factor,
        original,
        beta_fast=rope.number("beta_fast", 32.0) or 32.0,
        beta_slow=rope.number("beta_slow", 1.0) or 1.0,
        magnitude=rope.number("attention_factor", usual),
        truncate=rope.flag("truncate", True),
    )


def _read_longrope(rope: Fields, dims: int, original: int, max_context: int) -> LongRopeScaling:
    factor = rope.number("factor", max_context / original)
    usual = 1.0 if factor <= 1.0 else math.sqrt(1 + math.log(factor) / math.log(original))
    return LongRopeScaling(
        short_factor=rope.numbers("short_factor", dims // 2),
        long_factor=rope.numbers("long_factor", dims // 2),
        original_context=original,
        magnitude=rope.number("attention_factor", usual),
    )
