"""quantization_config: what is read of it, and what is refused with which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from model_config import KEYS, SMALL, model_config
from quantized_checkpoint import BLOCK, KV, compressed, group

from gpu_backend.models.description import Experts, Model
from gpu_backend.models.fields import UnsupportedModel
from gpu_backend.models.quantization import ScaleForm, StoredScales
from gpu_backend.models.quantized import quantized
from gpu_backend.models.registry import describe, read_model

RAW = {key: SMALL[name] for name, key in KEYS.items()} | {"architectures": ["LlamaForCausalLM"]}
MOE = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
}
NAMES = ("qkv", "o", "gate_up", "down")
ATTENTION = {f"{layer} {name}" for layer in (0, 1, 10) for name in ("qkv", "o")}
CHANNEL = group("channel", ["Linear"])
INT8 = {"num_bits": 8, "type": "int"}
CT = compressed([], CHANNEL)
MODELOPT = {"quant_method": "modelopt", "quant_algo": "FP8"}


def parse(section: dict[str, Any], **changes: Any) -> Model:
    return describe({**RAW, **changes, "quantization_config": section})


def kept(*names: Any) -> dict[str, Any]:
    """A section of fp8 by block that leaves these modules as they are."""
    return {**BLOCK, "modules_to_not_convert": list(names)}


def test_a_checkpoint_that_is_not_quantized() -> None:
    model = describe({**RAW, "quantization_config": None})
    assert (model.quantization, model.scale_forms) == (None, ())
    assert all(weight.stored is weight.scales is None for weight in model.weights())


@pytest.mark.parametrize(
    ("section", "stored", "loaded"),
    [
        (BLOCK, StoredScales.BLOCK, ScaleForm.BLOCK),
        ({"quant_method": "fp8", "activation_scheme": "static"}, StoredScales.TENSOR, ScaleForm.ROW),
        (compressed([], group("tensor", ["Linear"])), StoredScales.TENSOR, ScaleForm.ROW),
        (CT, StoredScales.CHANNEL, ScaleForm.ROW),
        (
            compressed([], group("block", ["Linear"], block_structure="128x128")),
            StoredScales.BLOCK,
            ScaleForm.BLOCK,
        ),
        (MODELOPT, StoredScales.TENSOR, ScaleForm.ROW),
        ({**MODELOPT, "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}, StoredScales.CHANNEL, ScaleForm.ROW),
        ({**MODELOPT, "quant_algo": "fp8_pb_wo"}, StoredScales.BLOCK, ScaleForm.BLOCK),
    ],
)
def test_linear_layers_are_fp8_and_others_are_not(
    section: dict[str, Any], stored: StoredScales, loaded: ScaleForm
) -> None:
    """A router and a head are loaded in the type that the engine computes in, whatever they are stored in."""
    model = parse(section, **MOE)
    layer = model.layers[0]
    assert model.scale_forms == (loaded,)
    for weight in (layer.qkv, layer.o, layer.gate_up, layer.down):
        assert (weight.stored, weight.scales) == (stored, loaded)
    for kept in (layer.router, model.head):
        assert kept is not None
        assert (kept.stored, kept.scales) == (stored, None)
    for plain in (model.embed, model.final_norm, layer.input_norm, layer.mlp_norm):
        assert plain.stored is plain.scales is None


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (
            kept("model.layers.1.mlp.down_proj", "lm_head"),
            {"1 down", "head"},
        ),
        (kept("model.layers.1"), {f"1 {name}" for name in NAMES}),
        (
            kept("o_proj", "layers.0.mlp"),
            {"0 o", "1 o", "10 o", "0 gate_up", "0 down"},
        ),
        ({**MODELOPT, "ignore": ["lm_head", "*.1.self_attn*"]}, {"head", "1 qkv", "1 o"}),
        (compressed(["re:.*self_attn.*"], CHANNEL), ATTENTION),
        (compressed(["model.layers.1", "lm_head"], CHANNEL), {"head"}),
        (
            compressed([], group("channel", [r"re:.*layers\.\d\..*proj$"])),
            {"head", *(f"10 {name}" for name in NAMES)},
        ),
    ],
)
def test_modules_that_are_left_as_they_are(section: dict[str, Any], expected: set[str]) -> None:
    """Each tool has its own way of naming them; layer 1 is not layer 10."""
    model = parse(section, num_hidden_layers=11)
    assert model.head is not None
    found = {"head"} if model.head.stored is None else set()
    for index in (0, 1, 10):
        for name in NAMES:
            weight = getattr(model.layers[index], name)
            assert (weight.stored is None) == (weight.scales is None)
            found |= set() if weight.stored else {f"{index} {name}"}
    assert found == expected


def test_groups_of_different_strategies() -> None:
    groups = (
        group("channel", [r"re:.*self_attn\..*"]),
        group("block", ["Linear"], block_structure=[128, 128]),
    )
    model = parse(compressed(["lm_head"], *groups))
    assert model.layers[0].qkv.stored is StoredScales.CHANNEL
    assert model.layers[0].down.stored is StoredScales.BLOCK
    assert model.scale_forms == (ScaleForm.ROW, ScaleForm.BLOCK)


@pytest.mark.parametrize(
    ("section", "cache"),
    [
        (BLOCK, False),
        ({"quant_method": "fp8", "kv_cache_scheme": "static"}, True),
        (compressed([], CHANNEL, kv_cache_scheme=KV), True),
        ({**MODELOPT, "kv_cache_scheme": KV}, True),
        ({**MODELOPT, "kv_cache_quant_algo": "FP8"}, True),
        (MODELOPT, False),
    ],
)
def test_a_checkpoint_that_is_made_for_an_fp8_cache(section: dict[str, Any], cache: bool) -> None:
    quantization = parse(section).quantization
    assert quantization is not None
    assert quantization.kv_cache is cache


@pytest.mark.parametrize("method", [{"quant_method": "compressed-tensors"}, {}])
def test_the_early_key_of_compressed_tensors_is_read_as_todays(method: dict[str, str]) -> None:
    early = {**{key: value for key, value in CT.items() if key != "quant_method"}, **method}
    assert describe({**RAW, "compression_config": early}) == parse(CT)
    assert describe({**RAW, "compression_config": early, "quantization_config": BLOCK}) == parse(BLOCK)
    assert describe({**RAW, "compression_config": None}) == describe(RAW)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (compressed([], group("group", ["Linear"])), "config group .*'group'"),
        ({"quantization_config": CT}, "a compressed-tensors checkpoint without config_groups"),
        ([], "must be an object"),
        ("fp8", "must be an object"),
    ],
)
def test_what_the_early_key_says_is_refused_by_its_name(section: Any, message: str) -> None:
    with pytest.raises(UnsupportedModel, match=rf"^config\.json: compression_config:? {message}"):
        describe({**RAW, "compression_config": section})


def test_modelopts_own_file_decides(tmp_path: Path) -> None:
    """Older checkpoints have nothing in config.json; newer ones say less there."""
    own = {
        "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["*o_proj"]}
    }
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(own))
    for section in (None, MODELOPT):
        (tmp_path / "config.json").write_text(json.dumps({**RAW, "quantization_config": section}))
        model = read_model(tmp_path)
        assert model.quantization is not None
        assert (model.quantization.method, model.quantization.kv_cache) == ("modelopt", True)
        assert model.layers[0].o.scales is None
        assert model.layers[0].qkv.scales is ScaleForm.ROW


def of_group(**changes: Any) -> dict[str, Any]:
    """A compressed-tensors section whose group has these weights."""
    return compressed([], {**CHANNEL, "weights": {**CHANNEL["weights"], **changes}})


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"bits": 4}, "quant_method '' is not supported: Blink serves weights in fp8"),
        ({"quant_method": "bitsandbytes"}, "quant_method 'bitsandbytes' is not supported"),
        ({"quant_method": 8}, "quant_method must be a string, found 8"),
        ([], "quantization_config must be an object"),
        ({**BLOCK, "fmt": "e5m2"}, "fmt 'e5m2' is not supported"),
        ({**BLOCK, "weight_block_size": [64, 128]}, "weight_block_size [64, 128] is not supported"),
        ({**BLOCK, "activation_scheme": "int8"}, "activation_scheme 'int8' is not supported"),
        ({**BLOCK, "expert_dtype": "fp4"}, "expert_dtype 'fp4' is not supported"),
        (
            {**BLOCK, "modules_to_convert": ["model.embed_tokens"]},
            "modules_to_convert",
        ),
        ({**BLOCK, "modules_to_not_convert": "lm_head"}, "modules_to_not_convert must be a list"),
        (
            {**BLOCK, "modules_to_not_convert": [3]},
            "modules_to_not_convert must be a list of names, found [3]",
        ),
        (
            {**BLOCK, "modules_to_not_convert": ["k_proj"]},
            "q_proj is in fp8 with scales by block and model.layers.0.self_attn.k_proj is not quantized, but",
        ),
        (
            of_group(num_bits=4, type="int", strategy="group"),
            "input_activations of 8 bits",
        ),
        (of_group(num_bits=4), "input_activations of 8 bits"),
        (of_group(strategy="group", group_size=64), "weights' strategy 'group' of 64"),
        (of_group(symmetric=False), "weights that are not symmetric"),
        (of_group(dynamic=True), "weights with dynamic scales"),
        (of_group(strategy="block", block_structure=[64, 64]), "block_structure [64, 64]"),
        (compressed([], {**CHANNEL, "weights": None}), "which quantizes no weights"),
        (
            compressed([], {**CHANNEL, "input_activations": {"num_bits": 8, "type": "int"}}),
            "input_activations of 8 bits",
        ),
        (compressed([], {**CHANNEL, "output_activations": INT8}), "output_activations"),
        (compressed([]), "without config_groups"),
        (compressed(["re:(unclosed"], CHANNEL), "'re:(unclosed' is no regular expression"),
        ({**CT, "sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config"),
        ({**CT, "transform_config": {"config_groups": {"R1": {}}}}, "transform_config"),
        ({**CT, "kv_cache_scheme": {**KV, "type": "int"}}, "kv_cache_scheme of 8 bits and type 'int'"),
        ({**CT, "kv_cache_scheme": {**KV, "strategy": "attn_head"}}, "kv_cache_scheme: strategy 'attn_head'"),
        ({**MODELOPT, "quant_algo": "MIXED_PRECISION"}, "ModelOpt's quant_algo 'MIXED_PRECISION'"),
        ({**MODELOPT, "kv_cache_quant_algo": "NVFP4"}, "ModelOpt's kv_cache_quant_algo 'NVFP4'"),
    ],
)
def test_what_is_not_served_is_refused_by_name(section: Any, message: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        parse(section)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"head_dim": 80},
            "with scales by block: the tensors that it is stacked from have 640 and 160 rows",
        ),
        ({"intermediate_size": 520}, "gate_proj.weight in fp8 with scales by block"),
        (
            {"intermediate_size": 520, "by_tensor": True},
            "in fp8: its 520 columns must be a multiple of 16",
        ),
        ({**MOE, "moe_intermediate_size": 64}, "experts.0.gate_proj.weight in fp8 with scales by block"),
        ({**MOE, "hidden_size": 192}, "experts.0.down_proj.weight in fp8 with scales by block"),
    ],
)
def test_sizes_that_blocks_do_not_divide_are_refused(changes: dict[str, Any], message: str) -> None:
    section = {"quant_method": "fp8"} if changes.pop("by_tensor", False) else BLOCK
    with pytest.raises(UnsupportedModel) as caught:
        parse(section, **changes)
    assert message in str(caught.value)


@pytest.mark.parametrize("form", list(ScaleForm))
def test_a_wish_to_quantize(form: ScaleForm) -> None:
    """It concerns the linear layers of a checkpoint that is not quantized."""
    experts = Experts(count=4, per_token=2, intermediate=128, renormalise=True)
    model = quantized(model_config(experts=experts), form)
    layer = model.layers[0]
    assert model.scale_forms == (form,)
    assert {name for name, weight in layer.weights() if weight.scales} == {"qkv", "o", "gate_up", "down"}
    assert all(weight.stored is None for weight in model.weights())
    published = parse({"quant_method": "fp8"})
    assert quantized(published, form) == published
