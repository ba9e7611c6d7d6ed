"""What a decoder-only transformer is made of, as data.

Everything that differs between families stands here and nowhere else: the engines, the sizing, the loader
and the tests read this description, and none of them knows a model's name.
`gpu_backend/models/registry.py` lists the functions that make one from a config.json.

A layer computes, with x the residual:

    x += attention_out_norm(o(attention(rope(head_norms(qkv(input_norm(x)) + qkv_bias)), sinks)) + o_bias)
    x += mlp_out_norm(down(activation(gate(mlp_norm(x))) * up(mlp_norm(x))))

In a layer with experts the second line is that of each of a token's experts, whose weighted sum is added;
they may have biases, and so may the router. The norms behind attention and MLP, the norms of heads, the sinks
and all biases may be missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_backend.models.abi import Activation
from gpu_backend.models.quantization import Form, Quantization, Stored
from gpu_backend.models.rope import Rope

DTYPES = ("bfloat16", "float16", "float32")


@dataclass(frozen=True)
class HeadOrder:
    """In which order the rows of the first `heads` heads of a matrix are loaded: `dims[i]` is the row of
    a head in the checkpoint that becomes its i-th (gpu_backend/models/rope.py says why)."""

    heads: int
    dims: tuple[int, ...]

    def rows(self, first: int, n: int) -> NDArray[np.intp]:
        """Of n rows from `first` on, which are whole heads: where each comes from, counted from `first`."""
        head_dim = len(self.dims)
        rows = np.arange(n)
        head, dim = rows // head_dim, rows % head_dim
        moved = head * head_dim + np.array(self.dims)[dim]
        return np.where(head + first // head_dim < self.heads, moved, rows)


@dataclass(frozen=True)
class Weight:
    """A matrix [out, in], row-major, or a vector.

    The checkpoint's `tensors`, stacked along their first axis, give `shape`. Their rows are loaded in
    `order`, if there is one, and `offset` is added to every element (Gemma multiplies norms by 1 + w).
    `stored`: the tensors are narrow, with scales for that beside each; of codes of four bits, a name stands
    for those that its packing has (gpu_backend/weights/packed.py). `scales`: the engine has the matrix in a
    narrow type, with scales of this form; None: in the type that it computes in.

    `fused` is the name of one tensor that a checkpoint may have in place of `tensors`, with a matrix for each
    expert. `matrices`: `tensors` is such a one, and has so many: [matrices, out / matrices, in]. Each of
    these may be `transposed` in the checkpoint, [in, out / matrices]; and where it is `interleaved`, rows of
    gate and of up alternate there, and here all rows of gate come first.
    """

    tensors: tuple[str, ...]
    shape: tuple[int, ...]
    order: HeadOrder | None = None
    offset: float = 0.0
    stored: Stored | None = None
    scales: Form | None = None
    fused: str = ""
    matrices: int | None = None
    transposed: bool = False
    interleaved: bool = False

    def arranged(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """One of the checkpoint's matrices as this weight has it, contiguous."""
        if self.transposed:
            matrix = matrix.T
        if self.interleaved:
            matrix = np.concatenate([matrix[0::2], matrix[1::2]])
        return np.ascontiguousarray(matrix)

    @property
    def n_elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Experts:
    """A mixture of experts (MoE): a token takes the `per_token` of `count` MLPs that its router scores
    highest."""

    count: int
    per_token: int
    intermediate: int  # of one expert
    renormalise: bool  # the weights of a token's experts sum to 1


@dataclass(frozen=True)
class Layer:
    """One layer (blink_layer of kernels/reference/model.h). What most families have stands in the order in
    which a step reads it, and behind it what few have.

    `window`: how many keys a token sees, itself included; None: all before it. `sinks`: of each query head, a
    score that takes part in the softmax as a key's without a value would. In a layer of experts, which has a
    `router`, `gate_up`, `down` and their biases are those of all experts, one expert after the other.
    `k_scale` and `v_scale` are names that checkpoints give to the one number by which the keys, or the
    values, of an fp8 cache are multiplied: a checkpoint has one of them, or none.
    """

    window: int | None
    rope: Rope
    input_norm: Weight
    qkv: Weight
    qkv_bias: Weight | None
    q_norm: Weight | None
    k_norm: Weight | None
    o: Weight
    attention_out_norm: Weight | None
    mlp_norm: Weight
    router: Weight | None
    gate_up: Weight
    down: Weight
    mlp_out_norm: Weight | None
    sinks: Weight | None = None
    o_bias: Weight | None = None
    router_bias: Weight | None = None
    gate_up_bias: Weight | None = None
    down_bias: Weight | None = None
    k_scale: tuple[str, ...] = ()
    v_scale: tuple[str, ...] = ()

    def multiplied_elements(self, experts: Experts | None) -> float:
        """Elements of the layer's matrices that a token is multiplied by: of experts, those that it takes."""
        mlp = self.gate_up.n_elements + self.down.n_elements
        share = experts.per_token / experts.count if experts and self.router else 1.0
        return self.qkv.n_elements + self.o.n_elements + share * mlp

    def weights(self) -> Iterator[tuple[str, Weight]]:
        """(field, weight) of every weight that the layer has."""
        for field in fields(self):
            weight = getattr(self, field.name)
            if isinstance(weight, Weight):
                yield field.name, weight


@dataclass(frozen=True)
class Model:
    """A model. Sizes are counts of elements.

    `intermediate` is the width of an MLP that is no expert; `max_context` is how many tokens a prompt and
    its answer may have, what a scaling of the rotation adds included; `dtype` is what the checkpoint holds,
    one of DTYPES; `eos_ids` are the ids that end an answer, at most MAX_EOS. `head` is None when the output
    layer is the embedding. `own_heads` are the output layer as checkpoints call it that have one, whatever
    config.json says: gpu_backend/weights/head.py chooses. `prefixes` are the beginnings that the names of all
    other tensors may have, that of this description first: gpu_backend/weights/layout.py chooses. What
    `embed` gives is multiplied by `embed_scale`.
    `quantization` is what the checkpoint says of itself; None: it is not quantized.
    """

    architecture: str
    hidden: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    intermediate: int
    activation: Activation
    experts: Experts | None
    vocab_size: int
    max_context: int
    norm_eps: float
    dtype: str
    eos_ids: tuple[int, ...]
    embed: Weight
    embed_scale: float
    layers: tuple[Layer, ...]
    final_norm: Weight
    head: Weight | None
    own_heads: tuple[Weight, ...]
    prefixes: tuple[str, ...]
    quantization: Quantization | None = None

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    @property
    def tied_head(self) -> bool:
        """Whether the output layer is the embedding."""
        return self.head is None

    @property
    def attention_width(self) -> int:
        """Elements of a token's queries, and of what attention makes of them."""
        return self.n_heads * self.head_dim

    @property
    def qkv_width(self) -> int:
        """Elements of a token's queries, keys and values."""
        return (self.n_heads + 2 * self.n_kv_heads) * self.head_dim

    @property
    def qk_norm(self) -> bool:
        """Whether queries and keys are normed, head by head."""
        return self.layers[0].q_norm is not None

    @property
    def qkv_bias(self) -> bool:
        """Whether queries, keys and values have a bias."""
        return self.layers[0].qkv_bias is not None

    @property
    def sinks(self) -> bool:
        """Whether attention has sinks."""
        return self.layers[0].sinks is not None

    @property
    def o_bias(self) -> bool:
        """Whether attention's output projection has a bias."""
        return self.layers[0].o_bias is not None

    @property
    def sandwich_norms(self) -> bool:
        """Whether norms stand behind attention and MLP, too."""
        return self.layers[0].attention_out_norm is not None

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The different windows of the layers, in the order in which they appear."""
        return tuple(dict.fromkeys(layer.window for layer in self.layers))

    @property
    def ropes(self) -> tuple[Rope, ...]:
        """The different rotations of the layers, in the order in which they appear."""
        return tuple(dict.fromkeys(layer.rope for layer in self.layers))

    @property
    def scale_forms(self) -> tuple[Form, ...]:
        """The different forms of the scales of the layers' narrow matrices; none where there are none."""
        weights = (weight for layer in self.layers for _, weight in layer.weights())
        return tuple(dict.fromkeys(weight.scales for weight in weights if weight.scales))

    @property
    def any_dense(self) -> bool:
        """Whether a layer has an ordinary MLP."""
        return any(layer.router is None for layer in self.layers)

    def has_experts(self, layer: int) -> bool:
        return self.layers[layer].router is not None

    def weights(self) -> Iterator[Weight]:
        """Every weight of the model."""
        yield self.embed
        for layer in self.layers:
            yield from (weight for _, weight in layer.weights())
        yield self.final_norm
        if self.head is not None:
            yield self.head

    @property
    def n_elements(self) -> int:
        """Of all weights."""
        return sum(weight.n_elements for weight in self.weights())
