"""Weights of four bits in GPU memory: codes in the order that kernels read, scales and zeros behind them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import small_models
import torch
from fake_cuda import run
from quantized_factory import make_quantized
from safetensors.torch import load_file, save_file
from test_fp8_weights import LOAD

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

COMPARE = """
from gpu_backend.models.fourbit import (
    E2M1, FACTORS, INTEGER_BITS, ORDER, SIGN_BITS, SIZE_BITS, unit_columns
)
from gpu_backend.models.half import to_float32

directory = Path(sys.argv[1]) / "model"
config, checkpoint = read_model(directory), Checkpoint(directory)
weights, half = load(config, checkpoint), compute_element(config.dtype).dtype

def halves(bits):
    return to_float32(bits.astype("<u2").view("<f2") if half == "float16" else bits.astype("<u2"), half)

def values(matrix):
    '''What kernels/primitives/codes.h makes of memory, before it is rounded.'''
    n = matrix.rows * matrix.columns
    data = np.frombuffer(memory.read(matrix.address, n // 2), "<u2")
    form, unit = matrix.groups, unit_columns(matrix.groups)
    if form.codes.value == "int4":
        ordered = [data >> bit & 15 for bit in INTEGER_BITS]
    else:
        ordered = [data >> size & 7 | (data >> sign & 1) << 3 for size, sign in zip(SIZE_BITS, SIGN_BITS)]
    codes = np.empty((n // 32, 32), "u1")
    codes[:, ORDER] = np.stack(ordered, 1).reshape(codes.shape)
    codes = codes.reshape(matrix.rows, -1)
    raw = array(matrix.scales, matrix.scales.element.cpp.removesuffix("_t"))
    factor = np.float32(2) ** -FACTORS[half]
    spread = lambda of, width: np.repeat(of, width, axis=1)
    if form.codes.value == "int4":
        pattern = 1024 if half == "float16" else 128
        integers = codes.astype("f4") + pattern + spread(halves(raw >> 16), unit)
        return integers * spread(halves(raw & 0xFFFF), unit)
    if form.group == 32:
        return E2M1[codes] * spread(np.exp2(raw.astype("f4") - 127 - FACTORS["bfloat16"]), 32)
    pairs = np.stack([halves(raw & 0xFFFF), halves(raw >> 16)], axis=2).reshape(matrix.rows, -1)
    return E2M1[codes] * spread(pairs * factor, 16)

for layer, description in zip(weights.layers, config.layers, strict=True):
    for name, weight in description.weights():
        matrix, expected = getattr(layer, name), checkpoint.stacked(weight)
        if matrix.scales is None:
            bits = array(matrix, "<u2")
            assert (bits == half_bits(expected, "float32", half).reshape(bits.shape)).all(), name
            continue
        np.testing.assert_allclose(values(matrix), expected, rtol=RTOL, err_msg=name)
        print(name)
memory.close()
"""
# Half a step of a scale, which is a product of two numbers with NVFP4 and is rounded to a half.
ROUNDED = {"nvfp4": 2.0**-8}


@pytest.mark.parametrize("layout", ["awq", "packed-rows", "nvfp4", "mxfp4-packed"])
@pytest.mark.parametrize("family", ["phi3", "qwen3-moe"])
def test_a_checkpoint_in_four_bits(fake: Path, tmp_path: Path, family: str, layout: str) -> None:
    make_quantized(tmp_path / "model", family, layout)
    printed, _ = run(fake, tmp_path, LOAD + COMPARE.replace("RTOL", str(ROUNDED.get(layout, 0))))
    assert printed.split() == ["qkv", "o", "gate_up", "down"] * 2


@pytest.mark.parametrize("layout", ["gptq", "mxfp4-packed"])
def test_float16(fake: Path, tmp_path: Path, layout: str) -> None:
    make_quantized(tmp_path / "model", "qwen2", layout, torch.float16)
    printed, _ = run(fake, tmp_path, LOAD + COMPARE.replace("RTOL", "0"))
    assert printed.split() == ["qkv", "o", "gate_up", "down"] * 2


REFUSED = """
directory = Path(sys.argv[1]) / "model"
try:
    load(read_model(directory), Checkpoint(directory))
except Exception as error:
    print(type(error).__name__, error)
memory.close()
"""


def test_scales_that_float16_does_not_hold_are_refused(fake: Path, tmp_path: Path) -> None:
    """They would be infinite, or vanish."""
    make_quantized(tmp_path / "model", "qwen2", "mxfp4-packed", torch.float16)
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    name = "model.layers.1.mlp.down_proj.weight_scale"
    tensors[name][3, 1] = 100
    save_file(tensors, tmp_path / "model" / "model.safetensors")
    printed, _ = run(fake, tmp_path, LOAD + REFUSED)
    assert printed.startswith("CheckpointError")
    assert "model.layers.1.mlp.down_proj.weight has scales that are beyond what float16 holds" in printed


RANDOM = """
from gpu_backend.models.quantization import Codes, GroupForm
for form in (GroupForm(Codes.INT4, 128), GroupForm(Codes.E2M1, 32), GroupForm(Codes.E2M1, 16)):
    config = read_model(Path(sys.argv[1]), form)
    for layer in load(config, RandomWeights(1)).layers:
        for matrix in (layer.qkv, layer.gate_up, layer.down):
            codes = np.frombuffer(memory.read(matrix.address, matrix.rows * matrix.columns // 2), "u1")
            assert len(np.unique(codes)) == 256
            scales = array(matrix.scales, matrix.scales.element.cpp.removesuffix("_t"))
            assert (scales != 0).all()
            print(form.words)
memory.close()
"""


def test_random_weights(fake: Path, tmp_path: Path) -> None:
    config = {**small_models.EXPERTS, "moe_intermediate_size": 128}
    printed, _ = run(fake, tmp_path, LOAD + RANDOM, config)
    assert len(set(printed.splitlines())) == 3


def test_a_section_without_its_tensors_is_refused(fake: Path, tmp_path: Path) -> None:
    """A model in bf16 whose config.json says that it is AWQ."""
    make_quantized(tmp_path / "model", "qwen2", "fp8-everything")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}
    path.write_text(json.dumps(config))
    printed, _ = run(fake, tmp_path, LOAD + REFUSED)
    assert printed.startswith("CheckpointError")
    assert "has no tensor 'model.layers.0.self_attn.q_proj.qweight'" in printed
