"""Logits of the CUDA engine over weights in four bits, against transformers in fp32 over the weights' values.

Kernels multiply the halves that are nearest to the values, and never round activations: they are as close as
transformers in bf16 over the same values.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from fourbit_checkpoint import FOUR_BITS, pack_files
from native_rig import NativeRig, Reference, make_limits, sharpen_routers
from safetensors.torch import save_file
from test_fp8_logits import COMMON, CONFIGS

from gpu_backend.abi import StepKind
from gpu_backend.cuda.driver import Device
from gpu_backend.engines.base import Shape
from gpu_backend.engines.native.lowering import lower_step
from gpu_backend.engines.native.weights import RandomWeights
from gpu_backend.models.quantization import Codes, GroupForm
from gpu_backend.models.registry import read_model
from gpu_backend.weights.checkpoint import Checkpoint

DECODER = "llama-decoder"  # the decode megakernel serves up to 8 rows, with stages of which one is not full
SIZES = {"vocab_size": 1008, "hidden_size": 1024, "intermediate_size": 11264, "num_key_value_heads": 4}
MODELS = {
    **CONFIGS,
    DECODER: lambda: transformers.LlamaConfig(**{**COMMON, **SIZES}, num_attention_heads=16, head_dim=64),
}
LAYOUTS = ["awq", "gptq", "packed-rows", "nvfp4", "mxfp4-packed"]
FORMS = [GroupForm(Codes.INT4, 128), GroupForm(Codes.E2M1, 32), GroupForm(Codes.E2M1, 16)]


@pytest.fixture
def device() -> Iterator[Device]:
    device = Device()
    yield device
    device.close()


def make_checkpoint(directory: Path, name: str, layout: str) -> None:
    """In `directory` what is served, and in its folder plain the same values."""
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(MODELS[name](), dtype=torch.bfloat16)
    sharpen_routers(model)
    model.save_pretrained(directory)
    model.save_pretrained(directory / "plain")
    values = pack_files(directory, FOUR_BITS[layout])
    save_file(values, directory / "plain" / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MODELS)
def test_prompts_decode_and_mixed_steps(name: str, layout: str, device: Device, tmp_path: Path) -> None:
    """Of few rows, whose weights are converted in registers, and of many, for which they are unpacked."""
    make_checkpoint(tmp_path, name, layout)
    rig = NativeRig(device, read_model(tmp_path), Checkpoint(tmp_path), make_limits())
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
        rig.prefill([(row, 0, 9) for row in range(first, first + 8) if row in lengths])
    for n in (5, 8, 23):
        rig.decode(list(range(n)))
    rig.driver.start(23, [rng.randrange(1000) for _ in range(150)])
    rig.mixed([0, 1, 2], [(23, 0, 150)])
    Reference(tmp_path / "plain", torch.bfloat16).check(rig)
    rig.close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_steps_of_few_rows_are_one_kernel(layout: str, device: Device, tmp_path: Path) -> None:
    """Of the model that is there for it; and the same bits alone and among other rows (E11)."""
    make_checkpoint(tmp_path, DECODER, layout)
    logits = []
    for others in (3, 5):
        rig = NativeRig(device, read_model(tmp_path), Checkpoint(tmp_path), make_limits())
        step = lower_step(rig.engine.model, Shape(StepKind.DECODE, 8, 8))
        assert [choice.name for choice in step] == ["gate", "megakernel", "sample"]
        for row in range(8):
            rng = random.Random(row if row < 4 else others * row)
            rig.driver.start(row, [rng.randrange(1000) for _ in range(20)])
            rig.prefill([(row, 0, 20)])
        rig.driver.decode(list(range(8)))
        logits.append(rig.engine.logits(8)[:4])
        rig.close()
    np.testing.assert_array_equal(logits[0], logits[1])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MODELS)
def test_random_weights_compute_finite_logits(
    name: str, form: GroupForm, device: Device, tmp_path: Path
) -> None:
    made = MODELS[name]()
    made.architectures = [type(made).__name__.replace("Config", "ForCausalLM")]
    made.save_pretrained(tmp_path)
    rig = NativeRig(device, read_model(tmp_path, form), RandomWeights(1), make_limits())
    rig.driver.start(0, list(range(100)))
    rig.prefill([(0, 0, 100)])
    rig.decode([0])
    for _, _, logits, _ in rig.seen:
        assert np.isfinite(logits).all()
        assert logits.std() > 1e-3
    rig.close()
