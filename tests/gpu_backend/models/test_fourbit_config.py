"""quantization_config of checkpoints in four bits: what published ones say is read, the rest refused."""

from __future__ import annotations

from typing import Any

import pytest
from model_config import KEYS, SMALL

from gpu_backend.models.description import Model
from gpu_backend.models.fields import UnsupportedModel
from gpu_backend.models.quantization import Codes, GroupForm, Packing, StoredGroups, StoredScales
from gpu_backend.models.registry import describe

RAW = {key: SMALL[name] for name, key in KEYS.items()} | {"architectures": ["LlamaForCausalLM"]}
# Qwen2.5-7B-Instruct-AWQ
AWQ = {
    "bits": 4, "group_size": 128, "modules_to_not_convert": None, "quant_method": "awq", "version": "gemm",
    "zero_point": True,
}  # fmt: skip
# Qwen2.5-7B-Instruct-GPTQ-Int4
GPTQ = {
    "batch_size": 1, "bits": 4, "block_name_to_quantize": None, "cache_block_outputs": True,
    "damp_percent": 0.01, "dataset": None, "desc_act": False, "exllama_config": {"version": 1},
    "group_size": 128, "max_input_length": None, "model_seqlen": None,
    "module_name_preceding_first_block": None, "modules_in_block_to_quantize": None, "pad_token_id": None,
    "quant_method": "gptq", "sym": True, "tokenizer": None, "true_sequential": True, "use_cuda_fp16": False,
    "use_exllama": True,
}  # fmt: skip
# As GPTQModel writes it
GPTQMODEL = {
    "bits": 4, "checkpoint_format": "gptq", "desc_act": True, "group_size": 128, "lm_head": False,
    "meta": {"quantizer": ["gptqmodel:1.4.0"], "uri": "https://github.com/modelcloud/gptqmodel",
             "damp_percent": 0.1, "static_groups": False, "true_sequential": True},
    "quant_method": "gptq", "sym": True,
}  # fmt: skip


def weights_of(**changes: Any) -> dict[str, Any]:
    return {
        "actorder": "weight", "block_structure": None, "dynamic": False, "group_size": 128, "num_bits": 4,
        "observer": "minmax", "observer_kwargs": {}, "strategy": "group", "symmetric": True, "type": "int",
        **changes,
    }  # fmt: skip


def compressed(
    weights: dict[str, Any], activations: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    group = {
        "input_activations": activations, "output_activations": None, "targets": ["Linear"],
        "weights": weights,
    }  # fmt: skip
    return {
        "config_groups": {"group_0": group}, "format": "pack-quantized", "global_compression_ratio": 1.5,
        "ignore": ["lm_head"], "kv_cache_scheme": None, "quant_method": "compressed-tensors",
        "quantization_status": "compressed", **changes,
    }  # fmt: skip


# RedHatAI's quantized.w4a16 and NVFP4 models
W4A16 = compressed(weights_of())
FLOAT4 = {
    "actorder": None, "block_structure": None, "dynamic": "local", "group_size": 16, "num_bits": 4,
    "observer": "minmax", "observer_kwargs": {}, "strategy": "tensor_group", "symmetric": True,
    "type": "float",
}  # fmt: skip
NVFP4_CT = compressed({**FLOAT4, "dynamic": False}, FLOAT4, format="nvfp4-pack-quantized")
MXFP4_CT = compressed(
    {**FLOAT4, "dynamic": False, "strategy": "group", "group_size": 32}, format="mxfp4-pack-quantized"
)
# nvidia's Llama-3.1-8B-Instruct-NVFP4: hf_quant_config.json, and the section of newer exports
NVFP4_FILE = {
    "producer": {"name": "modelopt", "version": "0.23.0"},
    "quantization": {
        "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16,
        "exclude_modules": ["lm_head"],
    },
}  # fmt: skip
NVFP4_CONFIG = {
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float"}}},
    "ignore": ["lm_head"], "quant_algo": "NVFP4", "quant_method": "modelopt",
    "producer": {"name": "modelopt", "version": "0.33.0"},
    "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
}  # fmt: skip
# gpt-oss-20b and gpt-oss-120b
GPT_OSS = {
    "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head",
    ],
    "quant_method": "mxfp4",
}  # fmt: skip
INT4_128 = GroupForm(Codes.INT4, 128)
FP4_16, FP4_32 = GroupForm(Codes.E2M1, 16), GroupForm(Codes.E2M1, 32)


def parse(section: dict[str, Any] | None, modelopt: dict[str, Any] | None = None, **changes: Any) -> Model:
    return describe({**RAW, **changes, "quantization_config": section}, modelopt=modelopt)


@pytest.mark.parametrize(
    ("section", "stored", "loaded"),
    [
        (AWQ, StoredGroups(Packing.AWQ, 128, False), INT4_128),
        (GPTQ, StoredGroups(Packing.GPTQ, 128, False), INT4_128),
        (GPTQMODEL, StoredGroups(Packing.GPTQ, 128, False), INT4_128),
        ({**GPTQ, "checkpoint_format": "gptq_v2"}, StoredGroups(Packing.GPTQ_V2, 128, False), INT4_128),
        ({**GPTQ, "group_size": -1}, StoredGroups(Packing.GPTQ, None, False), INT4_128),
        (W4A16, StoredGroups(Packing.PACKED, 128), INT4_128),
        (
            compressed(weights_of(symmetric=False, group_size=32)),
            StoredGroups(Packing.PACKED, 32, False),
            GroupForm(Codes.INT4, 32),
        ),
        (compressed(weights_of(strategy="channel")), StoredGroups(Packing.PACKED, None), INT4_128),
        (NVFP4_CT, StoredGroups(Packing.NVFP4_PACKED, 16), FP4_16),
        (MXFP4_CT, StoredGroups(Packing.MXFP4_PACKED, 32), FP4_32),
        (NVFP4_CONFIG, StoredGroups(Packing.NVFP4, 16), FP4_16),
    ],
)
def test_published_sections(section: dict[str, Any], stored: StoredGroups, loaded: GroupForm) -> None:
    model = parse(section, hidden_size=512, intermediate_size=768)
    layer = model.layers[0]
    assert model.scale_forms == (loaded,)
    for weight in (layer.qkv, layer.o, layer.gate_up, layer.down):
        assert (weight.stored, weight.scales) == (stored, loaded)
    for plain in (model.embed, model.final_norm, layer.input_norm, layer.mlp_norm):
        assert plain.stored is plain.scales is None


def test_modelopts_own_file() -> None:
    model = parse(None, NVFP4_FILE)
    assert model.scale_forms == (FP4_16,)
    assert model.quantization is not None
    assert model.quantization.kv_cache
    assert model.head is not None
    assert model.head.stored is None


def test_gpt_oss_quantizes_experts_alone() -> None:
    """Which have no other name in its list; here in a family that is served."""
    experts = {
        "architectures": ["Qwen3MoeForCausalLM"], "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
    }  # fmt: skip
    section = {**GPT_OSS, "modules_to_not_convert": [*GPT_OSS["modules_to_not_convert"], "mlp.gate"]}
    layer = parse(section, **experts).layers[0]
    stored = StoredGroups(Packing.MXFP4, 32)
    assert {name for name, weight in layer.weights() if weight.stored} == {"gate_up", "down"}
    assert (layer.gate_up.stored, layer.gate_up.scales) == (stored, FP4_32)


@pytest.mark.parametrize(
    ("section", "kept"),
    [
        ({**AWQ, "modules_to_not_convert": ["self_attn"]}, {"qkv", "o"}),
        ({**AWQ, "modules_to_not_convert": ["down"]}, {"down"}),
        (
            {**GPTQ, "modules_in_block_to_quantize": [["self_attn.o_proj"], ["mlp.down_proj"]]},
            {"qkv", "gate_up"},
        ),
        ({**GPTQMODEL, "dynamic": {r"-:.*\.self_attn\.": {}}}, {"qkv", "o"}),
        (compressed(weights_of(), ignore=["lm_head", "re:.*o_proj"]), {"o"}),
        ({**NVFP4_CONFIG, "ignore": ["lm_head", "model.layers.0.self_attn*"]}, {"qkv", "o"}),
    ],
)
def test_modules_that_are_left_as_they_are(section: dict[str, Any], kept: set[str]) -> None:
    layer = parse(section, hidden_size=512, intermediate_size=768).layers[0]
    names = ("qkv", "o", "gate_up", "down")
    assert {name for name in names if getattr(layer, name).stored is None} == kept


def test_a_mixture_of_fp8_and_four_bits() -> None:
    """As llm-compressor writes it, each group in its own format."""
    fp8 = {
        "targets": [r"re:.*self_attn.*"], "format": "float-quantized",
        "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True,
                    "dynamic": False},
    }  # fmt: skip
    four = {
        "targets": [r"re:.*mlp.*"],
        "format": "nvfp4-pack-quantized",
        "weights": {**FLOAT4, "dynamic": False},
    }
    section = {
        **NVFP4_CT, "format": "mixed-precision", "config_groups": {"group_0": fp8, "group_1": four},
    }  # fmt: skip
    layer = parse(section).layers[0]
    assert layer.qkv.stored is StoredScales.CHANNEL
    assert layer.down.stored == StoredGroups(Packing.NVFP4_PACKED, 16)


EIGHT_BIT_INPUT = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({**AWQ, "bits": 3}, "AWQ with 3 bits"),
        ({**AWQ, "version": "gemv"}, "AWQ's version 'gemv'"),
        ({**AWQ, "zero_point": False}, "AWQ with zero_point False"),
        ({**AWQ, "group_size": 100}, "AWQ with group_size 100"),
        ({**AWQ, "group_size": "all"}, "AWQ with group_size 'all'"),
        ({**GPTQ, "bits": 8}, "GPTQ with 8 bits"),
        ({**GPTQ, "bits": 3}, "GPTQ with 3 bits"),
        ({**GPTQ, "group_size": 0}, "GPTQ with group_size 0"),
        ({**GPTQ, "checkpoint_format": "marlin"}, "GPTQ's checkpoint_format 'marlin'"),
        (
            {**GPTQMODEL, "dynamic": {r"+:.*\.18\.": {"bits": 8}}},
            "GPTQ's dynamic '+:.*\\\\.18\\\\.': {'bits': 8}",
        ),
        (compressed(weights_of(num_bits=3)), "weights of 3 bits and type 'int'"),
        (compressed(weights_of(), EIGHT_BIT_INPUT), "input_activations of 8 bits"),
        (compressed(weights_of(actorder="group")), "actorder 'group', which puts columns of a group apart"),
        (compressed(weights_of(), format="marlin-24"), "type 'int' in the format 'marlin-24'"),
        (compressed(weights_of(strategy="tensor")), "weights' strategy 'tensor' in four bits"),
        (compressed(weights_of(type="float")), "type 'float' in the format 'pack-quantized'"),
        (compressed(weights_of(dynamic=True)), "weights with dynamic scales"),
        ({**NVFP4_CONFIG, "group_size": 32}, "ModelOpt's NVFP4 with group_size 32"),
        ({**NVFP4_CONFIG, "quant_algo": "W4A8_AWQ"}, "ModelOpt's quant_algo 'W4A8_AWQ'"),
        ({**NVFP4_CONFIG, "quant_algo": "MIXED_PRECISION"}, "ModelOpt's quant_algo 'MIXED_PRECISION'"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "quant_method 'bitsandbytes'"),
        ({**AWQ, "modules_to_not_convert": ["k_proj"]}, "q_proj is in AWQ with scales by groups of 128 and"),
        ({**AWQ, "modules_to_not_convert": ["v" * 600]}, "modules_to_not_convert must be a list of names"),
    ],
)
def test_what_is_not_served_is_refused_by_name(section: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        parse(section, hidden_size=512, intermediate_size=768)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("section", "sizes", "message"),
    [
        (AWQ, {"intermediate_size": 160}, "down_proj.weight in int4 (by groups of 128): its 160 columns"),
        (NVFP4_CONFIG, {"intermediate_size": 144}, "144 columns must be a multiple of 32"),
    ],
)
def test_sizes_that_groups_do_not_divide_are_refused(
    section: dict[str, Any], sizes: dict[str, int], message: str
) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        parse(section, hidden_size=512, **sizes)
    assert message in str(caught.value)
