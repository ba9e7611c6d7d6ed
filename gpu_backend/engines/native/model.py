"""A model as the steps see it: sizes, weights as matrices, the KV cache, and the kernels' target."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_backend.element import Element, compute_element
from gpu_backend.engines.base import Limits
from gpu_backend.model.config import ModelConfig
from gpu_backend.model.weights import LayerWeights, Weight, model_weights
from gpu_backend.ops.gemv import gemv_rows
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.matrix import KvCache, Matrix
from gpu_backend.ops.operations import Heads


@dataclass(frozen=True)
class DeviceLayer:
    """Of one layer, as gpu_backend.model.weights.LayerWeights has them; None where the model has none."""

    input_norm: Matrix
    qkv: Matrix
    o: Matrix
    post_norm: Matrix
    gate_up: Matrix
    down: Matrix
    q_norm: Matrix | None = None
    k_norm: Matrix | None = None
    router: Matrix | None = None


@dataclass(frozen=True)
class DeviceWeights:
    embed: Matrix
    layers: tuple[DeviceLayer, ...]
    final_norm: Matrix
    head: Matrix  # the embedding where the model ties them
    inv_freq: Matrix  # [1][head_dim / 2] fp32


def matrix_of(weight: Weight, element: Element, address: int = 0) -> Matrix:
    """A vector is a matrix of one row."""
    rows = weight.shape[0] if len(weight.shape) > 1 else 1
    return Matrix(rows, weight.n_elements // rows, element, address)


def described_weights(config: ModelConfig) -> DeviceWeights:
    """The weights before they are loaded: their addresses are 0."""
    weights, element = model_weights(config), compute_element(config.dtype)

    def layer(of: LayerWeights) -> DeviceLayer:
        return DeviceLayer(**{name: matrix_of(weight, element) for name, weight in of})

    embed = matrix_of(weights.embed, element)
    return DeviceWeights(
        embed=embed,
        layers=tuple(layer(of) for of in weights.layers),
        final_norm=matrix_of(weights.final_norm, element),
        head=embed if weights.head is None else matrix_of(weights.head, element),
        inv_freq=Matrix(1, config.head_dim // 2, Element.FP32),
    )


def kv_cache(config: ModelConfig, limits: Limits, address: int = 0, maps: int = 0) -> KvCache:
    """Of `limits.total_pages`."""
    sizes = (config.n_layers, limits.total_pages, limits.page_size, config.n_kv_heads, config.head_dim)
    return KvCache(*sizes, compute_element(config.dtype), address, maps)


def heads_of(config: ModelConfig) -> Heads:
    return Heads(config.n_heads, config.n_kv_heads, config.head_dim)


def target_of(config: ModelConfig, multiprocessors: int) -> Target:
    """A GPU with so many, as the model's kernels share it."""
    has_experts = config.experts is not None
    return Target(multiprocessors, has_experts, gemv_rows(config.hidden, has_experts))


@dataclass(frozen=True)
class NativeModel:
    """What a step is built from."""

    config: ModelConfig
    limits: Limits
    weights: DeviceWeights
    cache: KvCache
    target: Target

    @staticmethod
    def described(config: ModelConfig, limits: Limits, multiprocessors: int) -> NativeModel:
        """Before anything is loaded: all addresses are 0, all sizes and choices are what they will be."""
        weights, cache = described_weights(config), kv_cache(config, limits)
        return NativeModel(config, limits, weights, cache, target_of(config, multiprocessors))
