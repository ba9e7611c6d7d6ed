"""A model as the steps see it: sizes, weights as matrices, the KV cache, and the kernels' target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpu_backend.cuda.chip import Chip
from gpu_backend.element import Element, compute_element
from gpu_backend.engines.base import Limits
from gpu_backend.models.description import Layer, Model, Weight
from gpu_backend.models.quantization import GroupForm
from gpu_backend.models.rope import Rope
from gpu_backend.ops.attention import NO_KV_SCALES, Heads, KvScales, Reach
from gpu_backend.ops.gemv import gemv_rows
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.matrix import KvCache, Matrix
from gpu_backend.ops.weights import scales_of


@dataclass(frozen=True)
class DeviceLayer:
    """Of one layer, as gpu_backend.models.description.Layer has them; None where the model has none."""

    reach: Reach

    input_norm: Matrix
    qkv: Matrix
    o: Matrix
    mlp_norm: Matrix
    gate_up: Matrix
    down: Matrix
    q_norm: Matrix | None = None
    k_norm: Matrix | None = None
    router: Matrix | None = None
    qkv_bias: Matrix | None = None
    attention_out_norm: Matrix | None = None
    mlp_out_norm: Matrix | None = None
    sinks: Matrix | None = None
    o_bias: Matrix | None = None
    router_bias: Matrix | None = None
    gate_up_bias: Matrix | None = None
    down_bias: Matrix | None = None
    kv_scales: KvScales = NO_KV_SCALES


@dataclass(frozen=True)
class DeviceWeights:
    embed: Matrix
    layers: tuple[DeviceLayer, ...]
    final_norm: Matrix
    head: Matrix  # the embedding where the model ties them
    reaches: tuple[Reach, ...]  # the different ones of the layers


def matrix_of(weight: Weight, element: Element, address: int = 0) -> Matrix:
    """A vector is a matrix of one row. `element`: the type of what is not narrow. The scales of a narrow
    matrix lie right behind it."""
    rows = weight.shape[0] if len(weight.shape) > 1 else 1
    columns = weight.n_elements // rows
    if weight.scales is None:
        return Matrix(rows, columns, element, address)
    if isinstance(weight.scales, GroupForm):
        behind = address and address + rows * columns * Element.CODES.n_bits // 8
        scales = scales_of(weight.scales, rows, columns, behind)
        return Matrix(rows, columns, Element.CODES, address, scales, weight.scales)
    behind = address and address + rows * columns * Element.FP8.n_bytes
    scales = Matrix(*weight.scales.shape(rows, columns), Element.FP32, behind)
    return Matrix(rows, columns, Element.FP8, address, scales)


def described_weights(config: Model) -> DeviceWeights:
    """The weights before they are loaded: their addresses are 0."""
    element, reaches = compute_element(config.dtype), reaches_of(config)

    def layer(of: Layer) -> DeviceLayer:
        matrices = {name: matrix_of(weight, element) for name, weight in of.weights()}
        return DeviceLayer(reach=reaches[of.rope, of.window], kv_scales=NO_KV_SCALES, **matrices)

    embed = matrix_of(config.embed, element)
    return DeviceWeights(
        embed=embed,
        layers=tuple(layer(of) for of in config.layers),
        final_norm=matrix_of(config.final_norm, element),
        head=embed if config.head is None else matrix_of(config.head, element),
        reaches=tuple(reaches.values()),
    )


def reaches_of(
    config: Model, place: Callable[[Rope], int] = lambda rope: 0
) -> dict[tuple[Rope, int | None], Reach]:
    """The different reaches of the layers. `place`: where a rotation's table lies in GPU memory."""
    tables = {rope: Matrix(1, config.head_dim, Element.FP32, place(rope)) for rope in config.ropes}
    different = dict.fromkeys((layer.rope, layer.window) for layer in config.layers)
    return {
        (rope, window): Reach(index, tables[rope], window, rope.growth)
        for index, (rope, window) in enumerate(different)
    }


def kv_cache(config: Model, limits: Limits, address: int = 0, maps: int = 0) -> KvCache:
    """Of `limits.total_pages`."""
    sizes = (config.n_layers, limits.total_pages, limits.page_size, config.n_kv_heads, config.head_dim)
    element = Element.FP8 if limits.kv_fp8 else compute_element(config.dtype)
    return KvCache(*sizes, element, address, maps, limits.host_pages)


def heads_of(config: Model) -> Heads:
    return Heads(config.n_heads, config.n_kv_heads, config.head_dim)


def target_of(config: Model, chip: Chip) -> Target:
    """The GPU as the model's kernels share it."""
    has_experts = config.experts is not None
    rows = gemv_rows(config.hidden, has_experts, chip.capability)
    return Target(chip.multiprocessors, has_experts, rows, chip.capability)


@dataclass(frozen=True)
class NativeModel:
    """What a step is built from."""

    config: Model
    limits: Limits
    weights: DeviceWeights
    cache: KvCache
    target: Target

    @staticmethod
    def described(config: Model, limits: Limits, chip: Chip) -> NativeModel:
        """Before anything is loaded: all addresses are 0, all sizes and choices are what they will be."""
        weights, cache = described_weights(config), kv_cache(config, limits)
        return NativeModel(config, limits, weights, cache, target_of(config, chip))
