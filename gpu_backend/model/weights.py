"""Which tensors of a Hugging Face checkpoint make up each weight of the model, for both engines."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gpu_backend.model.config import ModelConfig


@dataclass(frozen=True)
class Weight:
    """`tensors` stacked along their first axis give `shape`; a matrix is [out, in], row-major."""

    tensors: tuple[str, ...]
    shape: tuple[int, ...]

    @property
    def n_elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class LayerWeights:
    """Of one layer, in the order in which a step reads them (blink_layer).

    In a layer of experts `gate_up` and `down` are those of all experts, one expert after the other.
    """

    input_norm: Weight
    qkv: Weight
    q_norm: Weight | None
    k_norm: Weight | None
    o: Weight
    post_norm: Weight
    router: Weight | None
    gate_up: Weight
    down: Weight

    def __iter__(self) -> Iterator[tuple[str, Weight]]:
        """(field, weight) of every weight that the model has."""
        for name in self.__dataclass_fields__:
            weight = getattr(self, name)
            if weight is not None:
                yield name, weight


@dataclass(frozen=True)
class ModelWeights:
    """`head` is None when the output layer is the embedding."""

    embed: Weight
    layers: tuple[LayerWeights, ...]
    final_norm: Weight
    head: Weight | None

    def __iter__(self) -> Iterator[Weight]:
        """Every weight of the model."""
        yield self.embed
        for layer in self.layers:
            yield from (weight for _, weight in layer)
        yield self.final_norm
        if self.head is not None:
            yield self.head

    @property
    def n_elements(self) -> int:
        return sum(weight.n_elements for weight in self)


def model_weights(config: ModelConfig) -> ModelWeights:
    """The weights of the model that `config` describes."""
    table = (config.vocab_size, config.hidden)
    return ModelWeights(
        embed=Weight(("model.embed_tokens.weight",), table),
        layers=tuple(_layer(config, index) for index in range(config.n_layers)),
        final_norm=Weight(("model.norm.weight",), (config.hidden,)),
        head=None if config.tied_head else Weight(("lm_head.weight",), table),
    )


def _layer(config: ModelConfig, index: int) -> LayerWeights:
    def weight(shape: tuple[int, ...], *names: str) -> Weight:
        return Weight(tuple(f"model.layers.{index}.{name}.weight" for name in names), shape)

    hidden, head_dim = config.hidden, config.head_dim
    qkv = ["self_attn.qkv_proj"] if config.fused else [f"self_attn.{name}_proj" for name in "qkv"]
    router, mlps, intermediate = None, ["mlp."], config.intermediate
    if config.experts is not None and config.has_experts(index):
        router = weight((config.experts.count, hidden), "mlp.gate")
        mlps = [f"mlp.experts.{expert}." for expert in range(config.experts.count)]
        intermediate = config.experts.intermediate
    gate_up = ["gate_up_proj"] if config.fused else ["gate_proj", "up_proj"]
    return LayerWeights(
        input_norm=weight((hidden,), "input_layernorm"),
        qkv=weight((config.qkv_width, hidden), *qkv),
        q_norm=weight((head_dim,), "self_attn.q_norm") if config.qk_norm else None,
        k_norm=weight((head_dim,), "self_attn.k_norm") if config.qk_norm else None,
        o=weight((hidden, config.attention_width), "self_attn.o_proj"),
        post_norm=weight((hidden,), "post_attention_layernorm"),
        router=router,
        gate_up=weight(
            (len(mlps) * 2 * intermediate, hidden), *(mlp + name for mlp in mlps for name in gate_up)
        ),
        down=weight((len(mlps) * hidden, intermediate), *(f"{mlp}down_proj" for mlp in mlps)),
    )
