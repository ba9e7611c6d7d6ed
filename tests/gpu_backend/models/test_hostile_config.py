"""config.json by somebody who means harm: everything is refused in one line, and soon."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from model_factory import LLAMA

from gpu_backend.models.fields import UnsupportedModel
from gpu_backend.models.registry import read_model

MOE = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}


def ignoring(*names: str) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "ignore": list(names),
        "config_groups": {
            "g": {
                "targets": ["Linear"],
                "weights": {"type": "float", "num_bits": 8, "strategy": "channel"},
            }
        },
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 10**7}, "num_hidden_layers must be at most 1024"),
        ({"num_hidden_layers": 10**7, "architectures": ["Qwen2ForCausalLM"]}, "at most 1024"),
        ({**MOE, "num_experts": 256 * 10**6}, "num_experts must be at most 256"),
        ({"head_dim": 2**31 - 2}, "head_dim must be at most 256"),
        ({"hidden_size": 10**4299}, "hidden_size must be at most 2147483647"),
        ({"num_hidden_layers": 1e300}, "num_hidden_layers must be at most 1024"),
        ({"rope_theta": 10**400}, "rope_theta must be a number"),
        ({"rms_norm_eps": -(10**4299)}, "rms_norm_eps must be a number"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 10**400}}, "factor must be a number"),
        (
            {
                "architectures": ["Phi3ForCausalLM"],
                "rope_scaling": {"type": "longrope", "short_factor": [10**400] * 8, "long_factor": [1] * 8},
            },
            "short_factor must hold positive numbers",
        ),
        ({**MOE, "mlp_only_layers": [0.5]}, "mlp_only_layers must be a list of integers"),
        ({"architectures": ["Gemma3ForCausalLM"], "query_pre_attn_scalar": 0}, "must be positive"),
        ({"architectures": ["Gemma3ForCausalLM"], "query_pre_attn_scalar": -4}, "must be positive"),
        ({"hidden_size": 10**15}, "hidden_size must be at most 2147483647"),
        ({"vocab_size": 10**18}, "vocab_size must be at most"),
        ({"architectures": {"LlamaForCausalLM": 1}}, "architectures must be a list"),
        ({"architectures": 7}, "architectures must be a list"),
        ({"architectures": [["LlamaForCausalLM"], None, 3]}, "architectures: "),
        ({"architectures": ["x\x1b[2J\n" * 100_000]}, "architectures: "),
        ({"architectures": ["\n", None]}, "architectures: "),
        ({"quantization_config": ignoring("re:(?\n)")}, "no regular expression"),
        ({"layer_types": [{}], "architectures": ["Qwen2ForCausalLM"]}, "layer_types: "),
        ({"hidden_act": "\n" * 10**6}, "hidden_act: "),
        ({"rms_norm_eps": 10**18, "rope_theta": "x" * 10**6}, "rope_theta must be a number"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 1e300}}, "factor must be at most"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4, "beta_fast": -1}}, "no finite rotation"),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 4, "attention_factor": 1e308}},
            "no finite rotation",
        ),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2}, "head_dim": 2}, "multiple of 16"),
        ({"eos_token_id": [[1]] * 10**5}, "eos_token_id: expected"),
        ({"quantization_config": ignoring("re:(a+)+$")}, "repeats groups"),
        ({"quantization_config": ignoring("re:(?x)(a+) +$")}, "has options"),
        ({"quantization_config": ignoring(r"re:[\][](a|a)+x]")}, "repeats groups"),
        ({"quantization_config": ignoring("re:" + "a?" * 30 + "a" * 30)}, "too many"),
        ({"quantization_config": ignoring("re:" + "(a|a)" * 30)}, "too many"),
        ({"quantization_config": ignoring("re:" + ".*" * 20 + "x")}, "too many"),
        ({"quantization_config": ignoring("x" * 10**6)}, "must be a list of names"),
        ({"quantization_config": ignoring(*(f"m{i}" for i in range(20_000)))}, "at most 16384"),
        ({"quantization_config": {"quant_method": "fp8", "modules_to_not_convert": ["*" * 30]}}, "too many"),
    ],
)
def test_it_is_refused_in_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, **changes}))
    began = time.thread_time()
    with pytest.raises(UnsupportedModel, match=message) as caught:
        read_model(tmp_path)
    assert time.thread_time() - began < 10
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_patterns_that_checkpoints_have_are_read(tmp_path: Path) -> None:
    patterns = (
        "lm_head", "re:.*lm_head", "re:^model.layers.[0-9]+.mlp.gate$", r"re:.*\.(q|k|v|o)_proj$",
        "re:(?!.*mlp).*", "re:.*(mlp|self_attn).*(gate|up|down)_proj.*", "re:model.*experts.*gate",
    )  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "quantization_config": ignoring(*patterns)}))
    model = read_model(tmp_path)
    assert model.quantization is not None
    assert len(model.quantization.ignored) == len(patterns)
