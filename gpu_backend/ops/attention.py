"""Attention's operations, as data: a part of what operations.py lists."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_backend.element import Element
from gpu_backend.models.rope import QueryGrowth
from gpu_backend.ops.matrix import Buffer, KvCache, Matrix


@dataclass(frozen=True)
class Heads:
    """Attention's: `q` query heads and `kv` heads of keys and values, `dim` elements each."""

    q: int
    kv: int
    dim: int

    @property
    def ratio(self) -> int:
        """Query heads that share a KV head."""
        return self.q // self.kv

    @property
    def width(self) -> int:
        """Elements of a token's queries, keys and values."""
        return (self.q + 2 * self.kv) * self.dim


@dataclass(frozen=True)
class Reach:
    """What layers share whose queries and keys turn alike, whose queries grow alike, and whose tokens see
    equally many keys.

    `rope` [1][head_dim] fp32 has the frequency and the magnitude of each pair of dimensions (RopePair of
    kernels/ops/attention/rope.h). `window`: keys that a token sees, itself included; None: all. `index`: the
    number of the reach among the model's.
    """

    index: int
    rope: Matrix
    window: int | None
    growth: QueryGrowth | None = None

    @property
    def growth_operands(self) -> tuple[float, int]:
        """`growth_beta` and `growth_context` of kernels, which only those read that have such queries."""
        return (self.growth.beta, self.growth.context) if self.growth else (0.0, 1)


@dataclass(frozen=True)
class DecodePlan:
    """Divides the cached keys of the sequences that decode into KV splits, and computes the angles of their
    RoPE.

    It runs once a step for each reach. At most `batch_slots` sequences decode. `mixed`: the step has
    prompts, too. `verifies`: a sequence may have several batch slots, with a token each (E27).
    """

    batch_slots: int
    mixed: bool
    heads: Heads
    reach: Reach
    verifies: bool = False


@dataclass(frozen=True)
class KvScales:
    """What a layer's keys, and its values, are multiplied by where the cache holds fp8."""

    key: float
    value: float


NO_KV_SCALES = KvScales(1.0, 1.0)


def cache_type(element: Element) -> str:
    """What names of kernels end with that take a cache of `element`: nothing for halves."""
    return f", {element.cpp}" if element is Element.FP8 else ""


@dataclass(frozen=True)
class LayerAttention:
    """What attention works with in one layer. The norms are those of each head's queries and keys; `bias` is
    that of all heads of `qkv`, added before the norms. `scales`: what elements of an fp8 cache are multiplied
    by, 1 where it holds halves. Attention to an fp8 cache finds a prompt's queries in float16
    (kernels/ops/attention/kv_element.h). `sinks` [1][heads.q]: a score of each query head that takes part in
    the softmax as a key's without a value would."""

    heads: Heads
    reach: Reach
    layer: int
    cache: KvCache
    qkv: Buffer
    out: Buffer
    q_norm: Matrix | None
    k_norm: Matrix | None
    eps: float
    bias: Matrix | None
    scales: KvScales = NO_KV_SCALES
    sinks: Matrix | None = None

    @property
    def cache_type(self) -> str:
        return cache_type(self.cache.element)


@dataclass(frozen=True)
class DecodeAttention:
    """RoPE, KV write and attention of the sequences that decode; the other fields as in DecodePlan."""

    batch_slots: int
    mixed: bool
    of: LayerAttention
    verifies: bool = False


@dataclass(frozen=True)
class Rope:
    """RoPE and KV write of prompts' tokens."""

    of: LayerAttention


@dataclass(frozen=True)
class PrefillPlan:
    """The units of prompts' attention, once a step."""

    tokens: int
    batch_slots: int
    heads: Heads


@dataclass(frozen=True)
class PrefillAttention:
    """Attention of prompts' tokens, whose keys and values are in the cache already.

    `after_decode`: the sequences that decode have their attention before. `of.qkv` is the whole buffer.
    """

    tokens: int
    of: LayerAttention
    after_decode: bool
