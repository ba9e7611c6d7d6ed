"""Which tensors make up a model by its checkpoint: config.json says it for the layout in which models are
published, and transformers 5 writes two more, which it reads just as well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gpu_backend.models.description import Layer, Model, Weight
from gpu_backend.models.quantization import StoredScales
from gpu_backend.models.quantized import stored
from gpu_backend.weights.checkpoint import Checkpoint
from gpu_backend.weights.head import with_own_head
from gpu_backend.weights.safetensors import CheckpointError


def as_stored(
    model: Model, checkpoint: Checkpoint, notice: Callable[[str], None] = lambda text: None
) -> Model:
    """The model with the names of tensors, and with the output layer, that its checkpoint has. `notice` is
    told where the output layer is not as config.json says.

    Raises CheckpointError, and UnsupportedModel for a quantization that differs within a matrix.
    """
    published, *others = model.prefixes
    if not _begins(model, checkpoint, published):
        for other in others:
            if _begins(model, checkpoint, other):
                model = _renamed(model, other)
                break
    layers = tuple(_with_fused_experts(layer, model, checkpoint) for layer in model.layers)
    return with_own_head(replace(model, layers=layers), checkpoint, notice)


def _begins(model: Model, checkpoint: Checkpoint, prefix: str) -> bool:
    """Whether the checkpoint has names that begin so. The embedding may be missing where the head is both."""
    return any(
        _name(model, weight.tensors[0], prefix) in checkpoint for weight in (model.embed, model.final_norm)
    )


def _name(model: Model, name: str, prefix: str) -> str:
    """A tensor's name with another beginning; the head may lack it, and keeps its name."""
    published = model.prefixes[0]
    return prefix + name.removeprefix(published) if name.startswith(published) else name


def _renamed(model: Model, prefix: str) -> Model:
    def names(of: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_name(model, name, prefix) for name in of)

    def weight(of: Weight) -> Weight:
        return replace(of, tensors=names(of.tensors))

    def layer(of: Layer) -> Layer:
        weights: dict[str, Any] = {name: weight(each) for name, each in of.weights()}
        return replace(of, **weights, k_scale=names(of.k_scale), v_scale=names(of.v_scale))

    renamed = replace(
        model,
        embed=weight(model.embed),
        layers=tuple(map(layer, model.layers)),
        final_norm=weight(model.final_norm),
    )
    # The modules that a quantization names are those of the checkpoint.
    return stored(renamed, model.quantization) if model.quantization else renamed


def _with_fused_experts(layer: Layer, model: Model, checkpoint: Checkpoint) -> Layer:
    """The layer with all of its experts in one tensor, where the checkpoint has them so."""
    if layer.router is None or model.experts is None:
        return layer
    changed: dict[str, Any] = {}
    for name, weight in (("gate_up", layer.gate_up), ("down", layer.down)):
        fused = replace(weight, tensors=(weight.fused,), matrices=model.experts.count)
        if not checkpoint.has(fused) or checkpoint.has(weight):
            continue
        if isinstance(weight.stored, StoredScales):
            raise CheckpointError(
                f"{checkpoint.directory}: '{weight.fused}' holds the experts of a layer fused into one "
                "tensor, which is not supported in fp8: save a tensor for each, as transformers does with "
                "save_pretrained(..., save_original_format=True)"
            )
        changed[name] = fused
    return replace(layer, **changed)
