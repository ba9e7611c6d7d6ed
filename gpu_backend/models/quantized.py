"""The description of a model whose linear layers are in fp8 or in four bits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gpu_backend.kernel_abi.fp8 import FP8_GROUP, SCALE_BLOCK
from gpu_backend.models.description import Layer, Model, Weight
from gpu_backend.models.fields import UnsupportedModel
from gpu_backend.models.quantization import (
    CODE_GRAIN,
    Form,
    GroupForm,
    Quantization,
    ScaleForm,
    Stored,
    StoredGroups,
)

MULTIPLIED = ("qkv", "o", "gate_up", "down")  # the others of a layer stay in the half type
SUFFIX = ".weight"
MATCHING_S = 30.0  # for all names of modules and all patterns


def quantized(model: Model, form: Form) -> Model:
    """The model with its linear layers in a narrow type, rounded to it while loaded: `--quantization`.

    A checkpoint that is narrow already stays as it is. Raises UnsupportedModel.
    """
    if model.quantization is not None:
        return model
    return _checked(_each(model, lambda name, weight: replace(weight, scales=form)))


def stored(model: Model, quantization: Quantization) -> Model:
    """The model as a quantized checkpoint has it. Raises UnsupportedModel."""
    deadline = time.monotonic() + MATCHING_S

    def described(name: str, weight: Weight) -> Weight:
        if time.monotonic() > deadline:
            raise UnsupportedModel(
                "config.json: quantization_config: finding out which modules are quantized takes more than "
                f"{MATCHING_S:g} s: it has too many names"
            )
        scales = stored_scales(quantization, weight)
        loaded = scales.loaded(weight.shape[1]) if scales and name in MULTIPLIED else None
        return replace(weight, stored=scales, scales=loaded)

    model = _each(model, described, (*MULTIPLIED, "router"))
    own_heads = tuple(described("head", head) for head in model.own_heads)
    head = model.head and own_heads[0]
    return _checked(replace(model, head=head, own_heads=own_heads, quantization=quantization))


def stored_scales(quantization: Quantization, weight: Weight) -> Stored | None:
    """Of the tensors that a weight is stacked from. Raises UnsupportedModel where they differ."""
    modules = [name.removesuffix(SUFFIX) for name in weight.tensors]
    scales = [quantization.scales_of(module) for module in modules]
    for module, other in zip(modules, scales, strict=True):
        if other != scales[0]:
            raise UnsupportedModel(
                f"config.json: quantization_config: {modules[0]} is {_words(scales[0])} and {module} is "
                f"{_words(other)}, but they are multiplied as one matrix, which must be alike"
            )
    return scales[0]


def _words(scales: Stored | None) -> str:
    return scales.words if scales else "not quantized"


def _each(
    model: Model, change: Callable[[str, Weight], Weight], names: tuple[str, ...] = MULTIPLIED
) -> Model:
    """The model with these weights of its layers changed."""

    def changed(layer: Layer) -> Layer:
        fields: dict[str, Any] = {
            name: change(name, weight) for name, weight in layer.weights() if name in names
        }
        return replace(layer, **fields)

    return replace(model, layers=tuple(map(changed, model.layers)))


def _checked(model: Model) -> Model:
    """Raises UnsupportedModel for sizes that kernels cannot read in a narrow type."""
    for layer in model.layers:
        for name in MULTIPLIED:
            weight: Weight = getattr(layer, name)
            _check(model, layer, name, weight)
    return model


def _check(model: Model, layer: Layer, name: str, weight: Weight) -> None:
    if weight.scales is None:
        return
    if isinstance(weight.scales, GroupForm):
        _check_groups(weight, weight.scales)
        return
    what = f"{weight.tensors[0]} in fp8"
    if weight.shape[1] % FP8_GROUP:
        raise UnsupportedModel(f"{what}: its {weight.shape[1]} columns must be a multiple of {FP8_GROUP}")
    if weight.scales is ScaleForm.ROW:
        return
    intermediate = model.experts.intermediate if model.experts and layer.router else model.intermediate
    heads = (model.n_heads * model.head_dim, model.n_kv_heads * model.head_dim)
    rows = {"qkv": heads, "gate_up": (intermediate,), "down": (model.hidden,), "o": (model.hidden,)}[name]
    if len(weight.tensors) > 1 and any(n % SCALE_BLOCK for n in rows):
        raise UnsupportedModel(
            f"{what} with scales by block: the tensors that it is stacked from have "
            f"{' and '.join(map(str, rows))} rows, which must be multiples of {SCALE_BLOCK}"
        )
    if weight.order and SCALE_BLOCK % len(weight.order.dims):
        raise UnsupportedModel(
            f"{what} with scales by block: a head of {len(weight.order.dims)} rows, whose rows are loaded in "
            f"another order, must lie within {SCALE_BLOCK} rows"
        )


def _check_groups(weight: Weight, form: GroupForm) -> None:
    grain, columns = max(CODE_GRAIN, form.group), weight.shape[1]
    stored = weight.stored.group if isinstance(weight.stored, StoredGroups) else None
    if columns % max(grain, stored or 0):
        raise UnsupportedModel(
            f"{weight.tensors[0]} in {form.words}: its {columns} columns must be a multiple of "
            f"{max(grain, stored or 0)}"
        )
