"""Which tensors of a Hugging Face checkpoint make up each weight of the model, for both engines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_backend.model.config import ModelConfig


@dataclass(frozen=True)
class Weight:
    """`tensors` stacked along their first axis give `shape`; a matrix is [out, in], row-major."""

    tensors: tuple[str, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class LayerWeights:
    """Of one layer, in the order in which a step reads them (blink_layer)."""

    input_norm: Weight
    qkv: Weight
    q_norm: Weight | None
    k_norm: Weight | None
    o: Weight
    post_norm: Weight
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


def model_weights(config: ModelConfig) -> ModelWeights:
    """The weights of the model that `config` describes."""
    table = (config.vocab_size, config.hidden)
    return ModelWeights(
        embed=Weight(("model.embed_tokens.weight",), table),
        layers=tuple(_layer(config, f"model.layers.{index}.") for index in range(config.n_layers)),
        final_norm=Weight(("model.norm.weight",), (config.hidden,)),
        head=None if config.tied_head else Weight(("lm_head.weight",), table),
    )


def _layer(config: ModelConfig, prefix: str) -> LayerWeights:
    def weight(shape: tuple[int, ...], *names: str) -> Weight:
        return Weight(tuple(f"{prefix}{name}.weight" for name in names), shape)

    hidden, head_dim = config.hidden, config.head_dim
    attention = "self_attn."
    qkv_heads = config.n_heads + 2 * config.n_kv_heads
    return LayerWeights(
        input_norm=weight((hidden,), "input_layernorm"),
        qkv=weight((qkv_heads * head_dim, hidden), *(f"{attention}{name}_proj" for name in "qkv")),
        q_norm=weight((head_dim,), f"{attention}q_norm") if config.qk_norm else None,
        k_norm=weight((head_dim,), f"{attention}k_norm") if config.qk_norm else None,
        o=weight((hidden, config.n_heads * head_dim), f"{attention}o_proj"),
        post_norm=weight((hidden,), "post_attention_layernorm"),
        gate_up=weight((2 * config.intermediate, hidden), "mlp.gate_proj", "mlp.up_proj"),
        down=weight((hidden, config.intermediate), "mlp.down_proj"),
    )
