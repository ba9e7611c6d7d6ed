"""gpt-oss: experts and attention with biases, windows in every other layer, and sinks."""

from __future__ import annotations

from dataclasses import replace

from gpu_backend.kernel_abi.routing import MAX_EXPERTS
from gpu_backend.models.abi import Activation
from gpu_backend.models.decoder import Style, all_layers, decoder, layer_types, window_of
from gpu_backend.models.description import Experts, Layer, Model, Weight
from gpu_backend.models.fields import Fields
from gpu_backend.models.llama import rope_of

DEFAULTS = {
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "sliding_window": 128,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "num_experts_per_tok": 4,
}
ROPE = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
THETA = 150000.0


def gpt_oss(fields: Fields) -> Model:
    """GptOssForCausalLM. Keys that are missing are as in transformers' GptOssConfig."""
    fields = fields.defaulted(**DEFAULTS)
    if "rope_parameters" not in fields and "rope_scaling" not in fields:
        fields = Fields({**fields.raw, "rope_parameters": ROPE})
    fields.only("attention_bias", True)
    fields.only("hidden_act", "silu")
    fields.only("swiglu_alpha", 1.702)  # clamp_inputs() and gate_logit() of kernels/ops/activation.h
    fields.only("swiglu_limit", 7.0)
    experts = Experts(
        count=fields.count("num_local_experts", fields.count("num_experts", 128), most=MAX_EXPERTS),
        per_token=fields.count("num_experts_per_tok"),
        intermediate=fields.count("intermediate_size"),
        renormalise=True,  # a softmax over those that were chosen is one over all, renormalised
    )
    window = window_of(fields)
    windows = [window if slides else None for slides in layer_types(fields, lambda layer: layer % 2 == 0)]
    model = decoder(fields, Style(qkv_bias=True), all_layers(fields, rope_of(fields, THETA)), windows)
    layers = (_layer(model, experts, f"model.layers.{i}.", layer) for i, layer in enumerate(model.layers))
    return replace(model, layers=tuple(layers), experts=experts, activation=Activation.CLAMPED_SWIGLU)


def _layer(model: Model, experts: Experts, path: str, layer: Layer) -> Layer:
    """The layer with sinks, biases, and experts in place of its MLP. The matrices of all experts are one
    tensor, which multiplies from the right, with a column of gate and one of up in turn."""
    count, hidden, intermediate = experts.count, model.hidden, experts.intermediate
    mlp = f"{path}mlp.experts."
    rows = count * 2 * intermediate
    gate_up = Weight((f"{mlp}gate_up_proj",), (rows, hidden), matrices=count, transposed=True)
    return replace(
        layer,
        sinks=Weight((f"{path}self_attn.sinks",), (model.n_heads,)),
        o_bias=Weight((f"{path}self_attn.o_proj.bias",), (hidden,)),
        router=Weight((f"{path}mlp.router.weight",), (count, hidden)),
        router_bias=Weight((f"{path}mlp.router.bias",), (count,)),
        gate_up=replace(gate_up, interleaved=True),
        gate_up_bias=Weight((f"{mlp}gate_up_proj_bias",), (rows,), matrices=count, interleaved=True),
        down=Weight((f"{mlp}down_proj",), (count * hidden, intermediate), matrices=count, transposed=True),
        down_bias=Weight((f"{mlp}down_proj_bias",), (count * hidden,), matrices=count),
    )
