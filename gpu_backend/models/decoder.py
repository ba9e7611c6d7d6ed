"""The shape that all families share, and in which ways they differ from it.

A family's file reads what is its own and calls `decoder`, which reads the sizes that every config.json
has, and names the tensors as transformers' checkpoints do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from gpu_backend.models.abi import Activation
from gpu_backend.models.description import Experts, HeadOrder, Layer, Model, Weight
from gpu_backend.models.fields import MAX_SIZE, Fields, UnsupportedModel
from gpu_backend.models.rope import Rope
from ringbuffer.model_file import shown

ACTIVATIONS = {"silu": Activation.SILU, "gelu_pytorch_tanh": Activation.GELU_TANH}  # by config.json's names
HEAD = "lm_head.weight"
MAX_LAYERS = 1024
MAX_HEAD_DIM = 256
T = TypeVar("T")


@dataclass(frozen=True)
class Style:
    """How a family's layers are made, beyond their sizes."""

    qkv_bias: bool = False
    qk_norm: bool = False  # RMSNorm of each head's queries and keys
    fused: bool = False  # the checkpoint has q, k, v as one tensor, and gate, up
    sandwich_norms: bool = False  # norms behind attention and MLP, too
    norm_offset: float = 0.0  # what is added to a norm's weights
    embed_scale: float = 1.0
    activation_key: str = "hidden_act"
    prefix: str = ""  # of the tensors' names; the head of a checkpoint may lack it
    other_prefixes: tuple[str, ...] = ()  # that checkpoints may have in place of it and of "model."


def decoder(
    fields: Fields,
    style: Style,
    ropes: Sequence[Rope],
    windows: Sequence[int | None],
    experts: Experts | None = None,
    has_experts: Callable[[int], bool] = lambda layer: True,
) -> Model:
    """The model of `fields`, whose layers have these rotations and windows.

    A window that hides nothing of the context is none.

    `has_experts`: which layers of a model with experts have them. Raises UnsupportedModel.
    """
    hidden, n_heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    names = _Names(fields, style, experts)
    trained = fields.count("max_position_embeddings")
    context = min(rope.scaling.longest(trained) if rope.scaling else trained for rope in ropes)
    windows = [None if window is None or window >= context else window for window in windows]
    table = (fields.count("vocab_size"), hidden)
    layers = [
        names.layer(index, rope, window, experts is not None and has_experts(index))
        for index, (rope, window) in enumerate(zip(ropes, windows, strict=True))
    ]
    activation = fields.text(style.activation_key, "silu")
    if activation not in ACTIVATIONS:
        raise UnsupportedModel(
            f"config.json: {style.activation_key}: {shown(activation)} is not supported, only "
            + ", ".join(repr(name) for name in ACTIVATIONS)
        )
    own_heads = tuple(Weight((name,), table) for name in dict.fromkeys((f"{style.prefix}{HEAD}", HEAD)))
    return Model(
        architecture=str(fields.items("architectures")[0]) if "architectures" in fields else "",
        hidden=hidden,
        n_heads=n_heads,
        n_kv_heads=names.n_kv_heads,
        head_dim=names.head_dim,
        intermediate=fields.count("intermediate_size"),
        activation=ACTIVATIONS[activation],
        experts=experts,
        vocab_size=fields.count("vocab_size"),
        max_context=context,
        norm_eps=fields.number("rms_norm_eps"),
        dtype=str(fields.raw.get("dtype") or fields.raw.get("torch_dtype") or "float32"),
        eos_ids=(),
        embed=Weight((f"{style.prefix}model.embed_tokens.weight",), table),
        embed_scale=style.embed_scale,
        layers=tuple(layers),
        final_norm=Weight((f"{style.prefix}model.norm.weight",), (hidden,), offset=style.norm_offset),
        head=None if fields.flag("tie_word_embeddings", False) else own_heads[0],
        own_heads=own_heads,
        prefixes=(f"{style.prefix}model.", *style.other_prefixes),
    )


def head_dim_of(fields: Fields) -> int:
    """The size of a head: what config.json says, or an equal share of the hidden size."""
    equal_share = fields.count("hidden_size") // fields.count("num_attention_heads")
    return fields.count("head_dim", equal_share, most=MAX_HEAD_DIM)


def layer_count(fields: Fields) -> int:
    """num_hidden_layers. Each has names of tensors, and is captured in every step."""
    return fields.count("num_hidden_layers", most=MAX_LAYERS)


def all_layers(fields: Fields, value: T) -> list[T]:
    """The same of every layer."""
    return [value] * layer_count(fields)


def layer_types(fields: Fields, default: Callable[[int], bool]) -> list[bool]:
    """Of each layer, whether it has a sliding window: by layer_types, or by `default` where there is none."""
    n_layers = layer_count(fields)
    types = fields.items("layer_types") or [
        "sliding_attention" if default(index) else "full_attention" for index in range(n_layers)
    ]
    known = {"full_attention": False, "sliding_attention": True}
    unknown = [kind for kind in types if not isinstance(kind, str) or kind not in known]
    if unknown:
        raise UnsupportedModel(
            f"config.json: layer_types: {shown(unknown[0])} is not supported, only {', '.join(known)}"
        )
    if len(types) < n_layers:
        raise UnsupportedModel(
            f"config.json: layer_types names {len(types)} layers of num_hidden_layers {n_layers}"
        )
    return [known[kind] for kind in types[:n_layers]]


def window_of(fields: Fields, default: int | None = None) -> int | None:
    """sliding_window in tokens; None where there is none. One beyond all contexts hides nothing."""
    if fields.raw.get("sliding_window", default) is None:
        return None
    return min(fields.limit("sliding_window", default), MAX_SIZE)


class _Names:
    """Which tensors of a checkpoint make up the weights of a layer."""

    def __init__(self, fields: Fields, style: Style, experts: Experts | None) -> None:
        self._style = style
        self._experts = experts
        self._hidden = fields.count("hidden_size")
        self._intermediate = fields.count("intermediate_size")
        self._n_heads = fields.count("num_attention_heads")
        self.n_kv_heads = fields.count("num_key_value_heads", self._n_heads)
        self.head_dim = head_dim_of(fields)

    def layer(self, index: int, rope: Rope, window: int | None, has_experts: bool) -> Layer:
        style, hidden, head_dim = self._style, self._hidden, self.head_dim
        path = f"{style.prefix}model.layers.{index}."

        def matrix(rows: int, columns: int, *names: str, order: HeadOrder | None = None) -> Weight:
            return Weight(tuple(f"{path}{name}.weight" for name in names), (rows, columns), order)

        def norm(size: int, name: str, offset: float = style.norm_offset) -> Weight:
            return Weight((f"{path}{name}.weight",), (size,), offset=offset)

        def head_norm(name: str) -> Weight | None:
            if not style.qk_norm:
                return None
            order = HeadOrder(1, dims) if dims else None
            return Weight((f"{path}self_attn.{name}.weight",), (head_dim,), order, style.norm_offset)

        def cache_scale(letter: str) -> tuple[str, ...]:
            places = ("", "attn.", "qkv_proj." if style.fused else f"{letter}_proj.")
            return tuple(f"{path}self_attn.{place}{letter}_scale" for place in places)

        dims = rope.head_order(head_dim)
        order = HeadOrder(self._n_heads + self.n_kv_heads, dims) if dims else None
        width = (self._n_heads + 2 * self.n_kv_heads) * head_dim
        projections = ["qkv_proj"] if style.fused else ["q_proj", "k_proj", "v_proj"]
        projections = [f"self_attn.{name}" for name in projections]
        biases = tuple(f"{path}{name}.bias" for name in projections)
        router, mlps, intermediate, fused = None, ["mlp."], self._intermediate, ""
        if has_experts and self._experts is not None:
            router = matrix(self._experts.count, hidden, "mlp.gate")
            mlps = [f"mlp.experts.{expert}." for expert in range(self._experts.count)]
            intermediate, fused = self._experts.intermediate, f"{path}mlp.experts."
        gate_up = [mlp + name for mlp in mlps for name in (_FUSED if style.fused else _APART)]
        sandwich = style.sandwich_norms
        mlp_norm = "pre_feedforward_layernorm" if sandwich else "post_attention_layernorm"
        return Layer(
            window=window,
            rope=rope,
            input_norm=norm(hidden, "input_layernorm"),
            qkv=matrix(width, hidden, *projections, order=order),
            qkv_bias=Weight(biases, (width,), order) if style.qkv_bias else None,
            q_norm=head_norm("q_norm"),
            k_norm=head_norm("k_norm"),
            o=matrix(hidden, self._n_heads * head_dim, "self_attn.o_proj"),
            attention_out_norm=norm(hidden, "post_attention_layernorm") if sandwich else None,
            mlp_norm=norm(hidden, mlp_norm),
            router=router,
            gate_up=replace(
                matrix(len(mlps) * 2 * intermediate, hidden, *gate_up), fused=fused and f"{fused}gate_up_proj"
            ),
            down=replace(
                matrix(len(mlps) * hidden, intermediate, *(f"{mlp}down_proj" for mlp in mlps)),
                fused=fused and f"{fused}down_proj",
            ),
            mlp_out_norm=norm(hidden, "post_feedforward_layernorm") if sandwich else None,
            k_scale=cache_scale("k"),
            v_scale=cache_scale("v"),
        )


_FUSED, _APART = ["gate_up_proj"], ["gate_proj", "up_proj"]
