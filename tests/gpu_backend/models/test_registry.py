"""config.json: what is understood, what it defaults to, and what is refused with which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from model_factory import (
    EXPERTS,
    FAMILIES,
    LLAMA,
    LLAMA3_ROPE,
    SIZES,
    as_gemma3_conditional,
    as_published,
    make_model,
)

from gpu_backend.models.abi import Activation
from gpu_backend.models.description import Experts, Model
from gpu_backend.models.fields import UnsupportedModel
from gpu_backend.models.registry import ARCHITECTURES, describe, read_model
from gpu_backend.models.rope import Llama3Scaling
from gpu_backend.weights.checkpoint import Checkpoint


def write(directory: Path, name: str, value: Any) -> None:
    (directory / name).write_text(json.dumps(value))


def parse(**changes: Any) -> Model:
    return describe({**LLAMA, **changes})


def test_llama_as_written_before_transformers_5() -> None:
    model = parse(rope_theta=5e5, rope_scaling=None, rms_norm_eps=1e-5)
    assert (model.n_layers, model.hidden, model.n_heads, model.n_kv_heads, model.head_dim) == (
        3,
        96,
        6,
        2,
        16,
    )
    assert (model.intermediate, model.vocab_size, model.max_context, model.norm_eps) == (160, 512, 512, 1e-5)
    assert (model.dtype, model.eos_ids, model.tied_head) == ("bfloat16", (2,), False)
    assert (model.qk_norm, model.qkv_bias, model.sandwich_norms, model.experts) == (False, False, False, None)
    assert (model.activation, model.embed_scale, model.windows) == (Activation.SILU, 1.0, (None,))
    (rope,) = model.ropes
    assert (rope.theta, rope.dims, rope.scaling, rope.score_scale) == (5e5, 16, None, 1.0)


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_llama3_scaling_in_both_spellings(key: str) -> None:
    model = parse(**{key: LLAMA3_ROPE}, rope_theta=5e5)
    assert model.ropes[0].scaling == Llama3Scaling(8.0, 1.0, 4.0, 64)


def test_qwen3_moe_says_which_layers_have_experts() -> None:
    changes = {**EXPERTS, "architectures": ["Qwen3MoeForCausalLM"], "mlp_only_layers": [1]}
    model = parse(**changes, decoder_sparse_step=1)
    assert model.experts == Experts(8, 3, 40, True)
    assert [model.has_experts(layer) for layer in range(3)] == [True, False, True]
    assert model.any_dense
    changes["num_local_experts"] = changes.pop("num_experts")  # transformers 5
    model = parse(**changes, decoder_sparse_step=2)
    assert [model.has_experts(layer) for layer in range(3)] == [False] * 3
    assert model.experts is None


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"architectures": ["MistralForCausalLM"], "sliding_window": None}, [None] * 3),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 100}, [100] * 3),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 512}, [None] * 3),  # hides nothing
        ({"architectures": ["MinistralForCausalLM"], "sliding_window": 100}, [100] * 3),
        ({"architectures": ["Phi3ForCausalLM"], "sliding_window": 100}, [100] * 3),
        ({"architectures": ["Phi3ForCausalLM"]}, [None] * 3),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 100}, [None] * 3),
        (
            {
                "architectures": ["Qwen2ForCausalLM"],
                "sliding_window": 100,
                "use_sliding_window": True,
                "max_window_layers": 1,
            },
            [None, 100, 100],
        ),
        (
            {
                "architectures": ["MinistralForCausalLM"],
                "sliding_window": 100,
                "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            },
            [None, 100, None],
        ),
        (
            {
                "architectures": ["Gemma3ForCausalLM"],
                "sliding_window": 100,
                "sliding_window_pattern": 3,
                "head_dim": 32,
            },
            [100, 100, None],
        ),
    ],
)
def test_each_layer_has_its_window(changes: dict[str, Any], windows: list[int | None]) -> None:
    assert [layer.window for layer in parse(**changes).layers] == windows


@pytest.mark.parametrize("family", FAMILIES)
def test_missing_keys_are_as_in_the_familys_own_configuration(family: str) -> None:
    make_config, make, _ = FAMILIES[family]
    given = {
        key: SIZES[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size")
    }
    given |= {"num_attention_heads": 32, "hidden_size": 1024, "eos_token_id": 2}
    if family == "qwen3-moe":
        given |= {
            key: EXPERTS[key] for key in ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
        }
    theirs = make_config(**given, **({"pad_token_id": 0} if family == "phi3" else {}))
    model = describe({**given, "architectures": [make.__name__]})
    assert model.n_kv_heads == theirs.num_key_value_heads
    assert model.head_dim == (getattr(theirs, "head_dim", None) or 1024 // 32)
    assert (model.norm_eps, model.max_context) == (theirs.rms_norm_eps, theirs.max_position_embeddings)
    assert model.tied_head == theirs.tie_word_embeddings
    ropes = theirs.rope_parameters
    ropes = list(ropes.values()) if "full_attention" in ropes else [ropes]
    assert {rope.theta for rope in model.ropes} <= {rope["rope_theta"] for rope in ropes}
    window = getattr(theirs, "sliding_window", None)
    slides = getattr(theirs, "layer_types", None) or ["sliding_attention" if window else "full_attention"] * 3
    assert [layer.window for layer in model.layers] == [
        window if kind == "sliding_attention" else None for kind in slides
    ]
    if model.experts is not None:
        assert model.experts.renormalise == getattr(theirs, "norm_topk_prob", True)
        assert (model.experts.count, model.experts.per_token) == (
            theirs.num_experts, theirs.num_experts_per_tok
        )  # fmt: skip


PHI3 = {"architectures": ["Phi3ForCausalLM"]}
MOE = {"architectures": ["Qwen3MoeForCausalLM"], **EXPERTS}
GEMMA = {"architectures": ["Gemma3ForCausalLM"]}


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"max_position_embeddings": 512.0, "hidden_size": 96.0, "num_hidden_layers": 3.0}, {}),
        ({"rope_theta": 10000, "rms_norm_eps": 1e-6}, {"rope_theta": 10000.0, "rms_norm_eps": 1e-6}),
        ({"head_dim": None, "rope_scaling": None, "hidden_act": None, "attention_bias": None}, {}),
        ({"tokenizer_max_length": int(1e30), "notes": {"x": [float("nan")] * 10**4}}, {}),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": int(1e30)}, {}),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 100.0}, {"sliding_window": 100}),
        (
            {**MOE, "mlp_only_layers": [1.0], "decoder_sparse_step": 1.0, "num_experts": 8.0},
            {**MOE, "mlp_only_layers": [1], "decoder_sparse_step": 1},
        ),
        (
            {
                "architectures": ["Qwen2ForCausalLM"],
                "use_sliding_window": True,
                "max_window_layers": int(1e30),
            },
            {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": False},
        ),
        ({"torch_dtype": None, "dtype": "bfloat16"}, {"torch_dtype": "bfloat16"}),
    ],
)
def test_numbers_mean_what_they_say_however_they_are_written(
    changes: dict[str, Any], same: dict[str, Any]
) -> None:
    architectures = changes.get("architectures", LLAMA["architectures"])
    expected = parse(**{"architectures": architectures, "sliding_window": None, **same})
    assert parse(**{"sliding_window": None, **changes}) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM; supported are Gemma3ForCausalLM"),
        ({"architectures": None}, "architectures: none"),
        ({"architectures": "LlamaForCausalLM"}, "architectures must be a list"),
        ({"attention_bias": True}, "attention_bias: True is not supported"),
        ({"mlp_bias": True}, "mlp_bias: True is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act: 'gelu' is not supported, only 'silu', 'gelu_pytorch_tanh'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"rope_scaling": {"type": "spiral", "factor": 4}}, "rope_type: 'spiral' is not supported, only"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "factor must be a number, found None"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "factor must be a number, found None"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0.5}}, "factor must be at least 1, found 0.5"),
        ({"rope_scaling": "linear"}, "rope_scaling must be an object"),
        ({"rope_theta": 1.0}, "rope_theta must be larger than 1, found 1.0"),
        ({"architectures": [["LlamaForCausalLM"]]}, "architectures: ['LlamaForCausalLM']; supported are"),
        ({"partial_rotary_factor": 0.05}, "turns 0 of 16 dimensions"),
        (
            {**PHI3, "rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
            "short_factor must be a list of 8 numbers, found 1 values",
        ),
        ({**PHI3, "sliding_window": 0}, "sliding_window must be a positive integer, found 0"),
        ({**GEMMA, "final_logit_softcapping": 30.0}, "final_logit_softcapping: 30.0 is not supported"),
        ({**GEMMA, "layer_types": ["linear_attention"] * 3}, "layer_types: 'linear_attention'"),
        ({**GEMMA, "layer_types": ["full_attention"]}, "layer_types names 1 layers of num_hidden_layers 3"),
        ({**MOE, "num_experts": None}, "num_experts must be a positive integer, found None"),
        ({**MOE, "num_experts": 300}, "num_experts must be at most 256"),
        ({**MOE, "num_experts_per_tok": 9}, "num_experts_per_tok must be at most 8"),
        ({**MOE, "moe_intermediate_size": 20}, "moe_intermediate_size must be a multiple of 8"),
        ({**MOE, "mlp_only_layers": "0"}, "mlp_only_layers must be a list, found '0'"),
        ({**MOE, "mlp_only_layers": ["0"]}, "mlp_only_layers must be a list of integers, found ['0']"),
        ({**MOE, "use_sliding_window": True}, "use_sliding_window: True is not supported"),
        ({"num_key_value_heads": 4}, "multiple of num_key_value_heads"),
        ({"num_attention_heads": 0}, "num_attention_heads must be a positive integer, found 0"),
        ({"hidden_size": "96"}, "hidden_size must be a positive integer, found '96'"),
        ({"head_dim": 24}, "head_dim must be a multiple of 16"),
        ({"head_dim": 272}, "head_dim must be at most 256, found 272"),
        ({"intermediate_size": 100}, "intermediate_size must be a multiple of 8"),
        ({"vocab_size": 600_000}, "vocab_size must be at most 524288"),
        ({"torch_dtype": "float8_e4m3fn"}, "dtype must be one of bfloat16, float16, float32"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings must be true or false, found 1"),
        ({"eos_token_id": list(range(9))}, "at most 8 ids"),
    ],
)
def test_unsupported_models_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        parse(**changes)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("rope", "context"),
    [
        (None, 512),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}, 1024),
        ({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 128}, 512),
        ({"rope_type": "dynamic", "factor": 2.0}, 1024),
        ({"rope_type": "linear", "factor": 2.0}, 512),
    ],
)
def test_a_scaling_of_the_rotation_makes_the_context_longer(
    rope: dict[str, Any] | None, context: int
) -> None:
    """As Qwen's model cards add YaRN to a config.json, which goes on saying what it was trained for."""
    model = parse(rope_scaling=rope, architectures=["MistralForCausalLM"], sliding_window=600)
    assert model.max_context == context
    assert model.windows == (600 if context > 600 else None,)


def test_config_that_is_not_there_or_not_json(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"config\.json: no such file"):
        read_model(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UnsupportedModel, match="not valid JSON"):
        read_model(tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("published", [False, True])
def test_weights_name_every_tensor_of_a_checkpoint_once(tmp_path: Path, family: str, published: bool) -> None:
    make_model(tmp_path, family)
    if published:
        as_published(tmp_path)
    model = read_model(tmp_path)
    assert model.architecture in ARCHITECTURES
    names = [name for weight in model.weights() for name in weight.tensors]
    checkpoint = Checkpoint(tmp_path)
    assert sorted(names) == sorted(checkpoint)
    for weight in model.weights():
        assert checkpoint.stacked(weight).shape == weight.shape


def test_an_unknown_text_part_of_mistral_3_is_refused() -> None:
    raw = {"architectures": ["Mistral3ForConditionalGeneration"], "text_config": {"model_type": "mistral4"}}
    with pytest.raises(UnsupportedModel, match="text_config: model_type: 'mistral4' is not supported, only"):
        describe(raw)


def test_the_text_part_of_gemma_3_is_found_beside_its_part_for_images(tmp_path: Path) -> None:
    make_model(tmp_path, "gemma3")
    as_published(tmp_path)
    text = read_model(tmp_path)
    as_gemma3_conditional(tmp_path)
    model = read_model(tmp_path)
    assert (model.architecture, model.eos_ids) == ("Gemma3ForConditionalGeneration", text.eos_ids)
    assert [layer.window for layer in model.layers] == [layer.window for layer in text.layers]
    assert (model.ropes, model.embed_scale, model.dtype) == (text.ropes, text.embed_scale, text.dtype)
    Checkpoint(tmp_path).check_all(model)
