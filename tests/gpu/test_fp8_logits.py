"""Logits of the CUDA engine over fp8 weights, against transformers in fp32 over the weights' values.

What rounding may cost is measured, not guessed: by transformers in bf16 whose linear layers round their
inputs to fp8, with a scale for each token, or each 128 columns of it where weights have scales by block.
Steps of few rows do not round theirs: they are as close as transformers in bf16.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from fp8_rounding import round_to_fp8
from native_rig import NativeRig, Reference, load_model, make_limits, sharpen_routers
from quantized_checkpoint import LAYOUTS, quantize_files
from safetensors.torch import load_file, save_file

from gpu_backend.cuda.driver import Device
from gpu_backend.engines.native.weights import RandomWeights
from gpu_backend.models.fp8 import dequantized, quantize
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.models.registry import read_model
from gpu_backend.weights.checkpoint import Checkpoint

COMMON: dict[str, Any] = {
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "initializer_range": 0.05,
    "hidden_size": 256,
    "intermediate_size": 640,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
}
EXPERTS: dict[str, Any] = {"num_experts": 24, "num_experts_per_tok": 8, "norm_topk_prob": True}
CONFIGS: dict[str, Callable[[], transformers.PretrainedConfig]] = {
    "llama": lambda: transformers.LlamaConfig(**COMMON, num_attention_heads=8, head_dim=64),
    "qwen3": lambda: transformers.Qwen3Config(**COMMON, num_attention_heads=6, head_dim=128),
    "qwen3-moe": lambda: transformers.Qwen3MoeConfig(
        **COMMON, **EXPERTS, num_attention_heads=6, head_dim=128, moe_intermediate_size=256
    ),
}
ON_LOADING = "rounded while loading"
SOURCES = {
    "compressed-tensors-channel": ScaleForm.ROW,
    "fp8-tensor-static": ScaleForm.ROW,
    "fp8-block": ScaleForm.BLOCK,
    ON_LOADING: ScaleForm.ROW,
}


@pytest.fixture
def device() -> Iterator[Device]:
    device = Device()
    yield device
    device.close()


class RoundedReference(Reference):
    """Over the weights' values: `exact` computes in fp32, `rounded` in bf16, with inputs rounded to fp8."""

    def __init__(self, directory: Path, form: ScaleForm) -> None:
        self.exact = load_model(directory, torch.float32)
        self.rounded = load_model(directory, torch.bfloat16)

        def hook(module: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            return (round_to_fp8(inputs[0], form), *inputs[1:])

        for name, module in self.rounded.named_modules():
            if name.endswith(("_proj", ".experts")):
                module.register_forward_pre_hook(hook)


def make_checkpoint(directory: Path, name: str, source: str) -> ScaleForm | None:
    """In `directory` what is served, and in its folder plain the same values. Returns the form to round
    to."""
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name](), dtype=torch.bfloat16)
    sharpen_routers(model)
    model.save_pretrained(directory)
    model.save_pretrained(directory / "plain")
    if source == ON_LOADING:
        values = load_file(directory / "model.safetensors")
        for tensor in (t for t in values if t.endswith("_proj.weight")):
            rounded = dequantized(*quantize(values[tensor].float().numpy(), ScaleForm.ROW))
            values[tensor] = torch.from_numpy(rounded)
    else:
        values = quantize_files(directory, LAYOUTS[source])
    save_file(values, directory / "plain" / "model.safetensors", {"format": "pt"})
    return ScaleForm.ROW if source == ON_LOADING else None


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", CONFIGS)
def test_prompts_decode_and_mixed_steps(name: str, source: str, device: Device, tmp_path: Path) -> None:
    config = read_model(tmp_path, make_checkpoint(tmp_path, name, source))
    rig = NativeRig(device, config, Checkpoint(tmp_path), make_limits())
    rng = random.Random(2)
    lengths = {0: 300, 1: 200, 2: 17, 3: 1, **dict.fromkeys(range(4, 23), 9)}
    for row, length in lengths.items():
        rig.driver.start(row, [rng.randrange(1000) for _ in range(length)])
    rig.prefill([(0, 0, 250)])
    rig.prefill([(0, 250, 300), (1, 0, 200)])
    rig.prefill([(2, 0, 17), (3, 0, 1)])
    for rows in ([0], [0, 1], [3, 2, 1, 0]):
        rig.decode(rows)
    for first in (4, 12, 20):
        rows = [row for row in range(first, first + 8) if row in lengths]
        rig.prefill([(row, 0, 9) for row in rows])
    rig.decode(list(range(23)))
    rig.driver.start(23, [rng.randrange(1000) for _ in range(150)])
    rig.mixed([0, 1, 2], [(23, 0, 150)])
    RoundedReference(tmp_path / "plain", SOURCES[source]).check(rig)
    rig.close()


@pytest.mark.parametrize("source", ["compressed-tensors-channel", "fp8-block"])
@pytest.mark.parametrize("name", CONFIGS)
def test_steps_of_few_rows_round_no_activations(
    name: str, source: str, device: Device, tmp_path: Path
) -> None:
    config = read_model(tmp_path, make_checkpoint(tmp_path, name, source))
    rig = NativeRig(device, config, Checkpoint(tmp_path), make_limits())
    rng = random.Random(3)
    for row in range(20):
        rig.driver.start(row, [rng.randrange(1000) for _ in range(30 + row)])
        rig.prefill([(row, 0, 30 + row)])
    for n in (1, 2, 5, 8, 20):
        rig.decode(list(range(n)))
    Reference(tmp_path / "plain", torch.bfloat16).check(rig)
    rig.close()


@pytest.mark.parametrize("name", CONFIGS)
def test_a_row_does_not_depend_on_others(name: str, device: Device, tmp_path: Path) -> None:
    """E11, E18, E20: the same bits alone and among others of the same step size."""
    form = make_checkpoint(tmp_path, name, ON_LOADING)
    logits = []
    for others in (3, 5):
        rig = NativeRig(device, read_model(tmp_path, form), Checkpoint(tmp_path), make_limits())
        for row in range(8):
            rng = random.Random(row if row < 4 else others * row)
            rig.driver.start(row, [rng.randrange(1000) for _ in range(20)])
            rig.prefill([(row, 0, 20)])
        rig.driver.decode(list(range(8)))
        logits.append(rig.engine.logits(8)[:4])
        rig.close()
    np.testing.assert_array_equal(logits[0], logits[1])


@pytest.mark.parametrize("form", list(ScaleForm))
@pytest.mark.parametrize("name", CONFIGS)
def test_random_weights_compute_finite_logits(
    name: str, form: ScaleForm, device: Device, tmp_path: Path
) -> None:
    made = CONFIGS[name]()
    made.architectures = [type(made).__name__.replace("Config", "ForCausalLM")]
    made.save_pretrained(tmp_path)
    config = read_model(tmp_path, form)
    rig = NativeRig(device, config, RandomWeights(1), make_limits())
    rig.driver.start(0, list(range(100)))
    rig.prefill([(0, 0, 100)])
    rig.decode([0])
    for _, _, logits, _ in rig.seen:
        assert np.isfinite(logits).all()
        assert logits.std() > 1e-3
    rig.close()
