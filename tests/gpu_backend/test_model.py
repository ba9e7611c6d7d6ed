"""config.json and safetensors: what is understood, and what is refused with which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from model_factory import EXPERTS, FAMILIES, LLAMA3_ROPE, SIZES, make_model
from safetensors.torch import save_file
from transformers.models.llama.modeling_llama import LlamaConfig, LlamaRotaryEmbedding

from gpu_backend.model.checkpoint import Checkpoint, CheckpointError
from gpu_backend.model.config import Experts, Llama3Scaling, ModelConfig, UnsupportedModel
from gpu_backend.model.weights import model_weights

LLAMA: dict[str, Any] = {**SIZES, "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16"}


def write(directory: Path, name: str, value: Any) -> None:
    (directory / name).write_text(json.dumps(value))


def parse(directory: Path, **changes: Any) -> ModelConfig:
    write(directory, "config.json", {**LLAMA, **changes})
    return ModelConfig.from_directory(directory)


def test_config_of_before_transformers_5(tmp_path: Path) -> None:
    config = parse(tmp_path, rope_theta=5e5, rope_scaling=None, rms_norm_eps=1e-5)
    assert config == ModelConfig(
        architecture="LlamaForCausalLM", n_layers=3, hidden=96, n_heads=6, n_kv_heads=2, head_dim=16,
        intermediate=160, vocab_size=512, max_context=512, norm_eps=1e-5, rope_theta=5e5, rope_scaling=None,
        qk_norm=False, tied_head=False, dtype="bfloat16", eos_ids=(2,),
    )  # fmt: skip


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_llama3_scaling_in_both_spellings(tmp_path: Path, key: str) -> None:
    config = parse(tmp_path, **{key: LLAMA3_ROPE}, rope_theta=5e5)
    assert config.rope_scaling == Llama3Scaling(8.0, 1.0, 4.0, 64)


@pytest.mark.parametrize("rope", [{"rope_type": "default", "rope_theta": 1e6}, LLAMA3_ROPE])
def test_inv_freq_is_that_of_transformers(tmp_path: Path, rope: dict[str, Any]) -> None:
    config = parse(tmp_path, rope_parameters=rope, head_dim=128)
    oracle = LlamaRotaryEmbedding(LlamaConfig(**{**SIZES, "head_dim": 128, "rope_parameters": rope}))
    np.testing.assert_allclose(config.inv_freq(), oracle.inv_freq.numpy(), rtol=1e-6)


def test_qwen3(tmp_path: Path) -> None:
    config = parse(tmp_path, architectures=["Qwen3ForCausalLM"], head_dim=32, tie_word_embeddings=True)
    assert (config.qk_norm, config.head_dim, config.tied_head) == (True, 32, True)


def test_phi3(tmp_path: Path) -> None:
    """A window that covers the context, and a rotation of the whole head, change nothing."""
    changes = {"rope_scaling": None, "sliding_window": 512, "partial_rotary_factor": 1.0}
    config = parse(tmp_path, architectures=["Phi3ForCausalLM"], **changes)
    assert (config.fused, config.experts, config.head_dim) == (True, None, 16)


def test_qwen3_moe(tmp_path: Path) -> None:
    changes = {**EXPERTS, "architectures": ["Qwen3MoeForCausalLM"], "mlp_only_layers": [1]}
    config = parse(tmp_path, **changes, decoder_sparse_step=1)
    assert config.experts == Experts(8, 3, 40, True, frozenset({1}))
    assert [config.has_experts(layer) for layer in range(3)] == [True, False, True]
    assert config.any_dense
    changes["num_local_experts"] = changes.pop("num_experts")  # transformers 5
    config = parse(tmp_path, **changes, decoder_sparse_step=2)
    assert config.experts == Experts(8, 3, 40, True, frozenset({0, 1, 2}))


PHI3 = {"architectures": ["Phi3ForCausalLM"]}
MOE = {"architectures": ["Qwen3MoeForCausalLM"], **EXPERTS}


@pytest.mark.parametrize(
    ("generation", "expected"),
    [(None, (2,)), ({}, (2,)), ({"eos_token_id": 5}, (5,)), ({"eos_token_id": [7, 5]}, (7, 5))],
)
def test_end_ids(tmp_path: Path, generation: dict[str, Any] | None, expected: tuple[int, ...]) -> None:
    if generation is not None:
        write(tmp_path, "generation_config.json", generation)
    assert parse(tmp_path).eos_ids == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM; supported are LlamaForCausalLM"),
        ({"architectures": None}, "architectures: none"),
        ({"attention_bias": True}, "attention_bias: True is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act: 'gelu'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, "rope_type: 'yarn'"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "factor must be a number, found None"),
        ({"rope_scaling": "linear"}, "rope_scaling must be an object"),
        ({**PHI3, "rope_scaling": {"type": "longrope"}}, "rope_type: 'longrope' is not supported"),
        ({**PHI3, "rope_scaling": {"type": "su"}}, "rope_type: 'su' is not supported"),
        ({**PHI3, "partial_rotary_factor": 0.75}, "partial_rotary_factor: 0.75"),
        ({**PHI3, "rope_parameters": {"partial_rotary_factor": 0.75}}, "partial_rotary_factor: 0.75"),
        ({**PHI3, "sliding_window": 511}, "sliding_window: 511 is not supported"),
        ({**MOE, "num_experts": None}, "num_experts must be a positive integer, found None"),
        ({**MOE, "num_experts": 300}, "num_experts must be at most 256"),
        ({**MOE, "num_experts_per_tok": 9}, "num_experts_per_tok must be at most 8"),
        ({**MOE, "moe_intermediate_size": 20}, "moe_intermediate_size must be a multiple of 8"),
        ({**MOE, "mlp_only_layers": "0"}, "mlp_only_layers must be a list of integers, found '0'"),
        ({"num_key_value_heads": 4}, "multiple of num_key_value_heads"),
        ({"num_attention_heads": 0}, "num_attention_heads must be a positive integer, found 0"),
        ({"hidden_size": "96"}, "hidden_size must be a positive integer, found '96'"),
        ({"head_dim": 24}, "head_dim must be a multiple of 16"),
        ({"head_dim": 272}, "head_dim must be a multiple of 16"),
        ({"intermediate_size": 100}, "intermediate_size must be a multiple of 8"),
        ({"vocab_size": 600_000}, "vocab_size must be at most 524288"),
        ({"torch_dtype": "float8_e4m3fn"}, "dtype must be one of bfloat16, float16, float32"),
        ({"eos_token_id": 512}, "inside the vocabulary"),
        ({"eos_token_id": list(range(9))}, "at most 8 ids"),
        ({"eos_token_id": "</s>"}, "expected an integer or a list of integers"),
    ],
)
def test_unsupported_models_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        parse(tmp_path, **changes)
    assert message in str(caught.value)


def test_config_that_is_not_there_or_not_json(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"config\.json: no such file"):
        ModelConfig.from_directory(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UnsupportedModel, match="not valid JSON"):
        ModelConfig.from_directory(tmp_path)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_weights_name_every_tensor_of_a_checkpoint_once(tmp_path: Path, family: str) -> None:
    make_model(tmp_path, family)
    weights = model_weights(ModelConfig.from_directory(tmp_path))
    names = [name for weight in weights for name in weight.tensors]
    checkpoint = Checkpoint(tmp_path)
    assert sorted(names) == sorted(checkpoint)
    for weight in weights:
        assert checkpoint.stacked(weight).shape == weight.shape


def test_sharded_checkpoint_in_three_types(tmp_path: Path) -> None:
    values = torch.linspace(-3, 3, 24).reshape(4, 6)
    types = {"a": torch.bfloat16, "b": torch.float16, "c": torch.float32}
    for name, dtype in types.items():
        save_file({name: values.to(dtype)}, tmp_path / f"{name}.safetensors", {"format": "pt"})
    index = {"weight_map": {name: f"{name}.safetensors" for name in types}}
    write(tmp_path, "model.safetensors.index.json", index)
    checkpoint = Checkpoint(tmp_path)
    assert list(checkpoint) == ["a", "b", "c"]
    assert [checkpoint.tensor(name).dtype for name in types] == [np.uint16, np.float16, np.float32]
    for name, dtype in types.items():
        assert checkpoint.dtype(name) == str(dtype).removeprefix("torch.")
        np.testing.assert_array_equal(checkpoint.float32(name), values.to(dtype).float().numpy())
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"names b\.safetensors, which is not there"):
        Checkpoint(tmp_path)


def test_tensors_that_were_released_leave_memory_and_come_back(tmp_path: Path) -> None:
    """A checkpoint that is read tensor by tensor never becomes resident as a whole."""
    values = torch.arange(8 << 20, dtype=torch.float32).reshape(8, -1)  # 32 MiB
    save_file({str(i): row for i, row in enumerate(values)}, tmp_path / "model.safetensors")
    checkpoint = Checkpoint(tmp_path)

    def mapped_kib() -> int:
        lines = Path("/proc/self/smaps").read_text().split("model.safetensors")[1].splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("Rss:")))

    most = 0
    for name in list(checkpoint):
        assert checkpoint.tensor(name).sum() == values[int(name)].numpy().sum()
        most = max(most, mapped_kib())
        checkpoint.release(name)
    assert most < 3 * 4096
    assert mapped_kib() < 1024
    np.testing.assert_array_equal(checkpoint.tensor("3"), values[3].numpy())


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"no tensor 'lm_head\.weight'"):
        Checkpoint(tmp_path).tensor("lm_head.weight")


def safetensors_bytes(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data


def one_tensor(dtype: str, n: int, end: int, data: bytes) -> bytes:
    header = {"a": {"dtype": dtype, "shape": [n], "data_offsets": [0, end]}}
    return safetensors_bytes(json.dumps(header).encode(), data)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a safetensors file"),
        (b"PK\x03\x04 a zip archive, say", "not a safetensors file"),
        (safetensors_bytes(b"{}", length=3), "not a safetensors file"),
        (safetensors_bytes(b"[1]"), "damaged safetensors header"),
        (safetensors_bytes(b'{"a": {"dtype": "F32"}}'), "damaged safetensors header"),
        (one_tensor("I64", 1, 8, b"12345678"), "'a' is I64; supported are BF16, F16, F32"),
        (one_tensor("F32", 1, 4, b"123"), r"'a' of shape \(1,\) cannot lie at bytes 0 to 4"),
        (one_tensor("F32", 2, 4, b"1234"), r"'a' of shape \(2,\) cannot lie at bytes 0 to 4"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        Checkpoint(tmp_path)


def test_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor"):
        Checkpoint(tmp_path)
