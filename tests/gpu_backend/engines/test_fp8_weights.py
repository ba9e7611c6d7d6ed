"""fp8 weights in GPU memory: elements in the order that kernels read, scales behind them."""

from __future__ import annotations

from pathlib import Path

import pytest
import small_models
import torch
from fake_cuda import op, run
from model_factory import make_model
from quantized_factory import SIZES, make_quantized

from gpu_backend.models.quantization import SCALE_BLOCK, ScaleForm

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

LOAD = """
import numpy as np
from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.element import compute_element
from gpu_backend.engines.native.kernels import Kernels
from gpu_backend.engines.native.sizing import weight_bytes
from gpu_backend.engines.native.weights import RandomWeights, WeightLoader, loading_kernels
from gpu_backend.models.fp8 import dequantized, in_register_order
from gpu_backend.models.half import half_bits
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.models.registry import read_model
from gpu_backend.weights.checkpoint import Checkpoint

device, stream = Device(), Stream()
memory = DeviceMemory(device)

def load(config, source):
    done = []
    kernels = Kernels(device.arch, loading_kernels(config, source), compute_element(config.dtype))
    weights = WeightLoader(memory, stream, kernels, config, 512, source, lambda *at: done.append(at)).load()
    kernels.close()
    assert done[-1] == ("weights", weight_bytes(config), weight_bytes(config))
    return weights

def array(matrix, dtype):
    data = memory.read(matrix.address, matrix.rows * matrix.columns * np.dtype(dtype).itemsize)
    return np.frombuffer(data, dtype).reshape(matrix.rows, matrix.columns)
"""
COMPARE = """
directory = Path(sys.argv[1]) / "model"
config, checkpoint = read_model(directory), Checkpoint(directory)
weights, order = load(config, checkpoint), in_register_order(np.arange(16, dtype=np.uint8)[None])[0]
for layer, description in zip(weights.layers, config.layers, strict=True):
    for name, weight in description.weights():
        matrix, expected = getattr(layer, name), checkpoint.stacked(weight)
        if matrix.scales is None:
            bits = array(matrix, "<u2")
            assert (bits == half_bits(expected, "float32", "bfloat16").reshape(bits.shape)).all(), name
            continue
        groups, elements = array(matrix, "u1").reshape(matrix.rows, -1, 16), np.empty(weight.shape, np.uint8)
        elements.reshape(groups.shape)[:, :, order] = groups
        assert (dequantized(elements, array(matrix.scales, "<f4")) == expected).all(), name
        print(name)
memory.close()
"""


@pytest.mark.parametrize("layout", ["fp8-block", "fp8-everything", "compressed-tensors-channel"])
@pytest.mark.parametrize("family", ["phi3", "qwen3-moe"])
def test_a_checkpoint_in_fp8(fake: Path, tmp_path: Path, family: str, layout: str) -> None:
    """Elements, scales, and what is left in bf16, or loaded as its values."""
    make_quantized(tmp_path / "model", family, layout)
    printed, _ = run(fake, tmp_path, LOAD + COMPARE)
    expected = ["qkv", "o", "gate_up", "down"] * 2
    if layout == "compressed-tensors-channel":  # which leaves o of layer 1 as it is
        del expected[5]
    assert printed.split() == expected


ROUND = """
form = ScaleForm.FORM
config = read_model(Path(sys.argv[1]) / "model", form)
weights = load(config, Checkpoint(Path(sys.argv[1]) / "model"))
for layer in weights.layers:
    for matrix in (layer.qkv, layer.o, layer.gate_up, layer.down):
        print(matrix.address, matrix.scales.address, matrix.rows, matrix.columns)
memory.close()
"""


@pytest.mark.parametrize("form", list(ScaleForm))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_another_checkpoint_is_rounded_on_the_gpu(
    fake: Path, tmp_path: Path, dtype: torch.dtype, form: ScaleForm
) -> None:
    """Every row of every matrix, tensor by tensor, each to its own place."""
    make_model(tmp_path / "model", "qwen3-moe", dtype, num_hidden_layers=2, **SIZES["qwen3-moe"])
    printed, log = run(fake, tmp_path, LOAD + ROUND.replace("FORM", form.name))
    kernel, height = ("quantize", 1) if form is ScaleForm.ROW else ("quantize_weight", SCALE_BLOCK)
    covered, expected = {}, {}
    for call in (call for call in log if op(call) == kernel):
        to, scales, first, second = (int.from_bytes(bytes.fromhex(word), "little") for word in call[8:12])
        columns, rows = (first, int(call[2])) if form is ScaleForm.ROW else (second, first)
        across = form.shape(rows, columns)[1]
        covered |= {to + row * columns: scales + 4 * (row // height) * across for row in range(rows)}
    for line in printed.splitlines():
        address, scales, rows, columns = map(int, line.split())
        across = form.shape(rows, columns)[1]
        expected |= {address + row * columns: scales + 4 * (row // height) * across for row in range(rows)}
    assert covered == expected


RANDOM = """
for form in ScaleForm:
    config = read_model(Path(sys.argv[1]), form)
    weights = load(config, RandomWeights(1))
    for layer in weights.layers:
        for matrix in (layer.qkv, layer.gate_up, layer.down):
            scales = array(matrix.scales, "<f4")
            assert scales.shape == form.shape(matrix.rows, matrix.columns)
            assert (np.abs(scales * 112 / 0.02 - 1) < 0.21).all() and len(np.unique(scales)) > scales.size / 2
memory.close()
"""


def test_random_weights_are_fp8_with_scales_that_differ(fake: Path, tmp_path: Path) -> None:
    config = {**small_models.EXPERTS, "moe_intermediate_size": 128}
    _, log = run(fake, tmp_path, LOAD + RANDOM, config)
    filled = [int.from_bytes(bytes.fromhex(call[8]), "little") for call in log if op(call) == "random_fp8"]
    layer = [512 * 10 * 64 // 4, 512 * 6 * 64 // 4, 2 * 8 * 512 * 128 // 4, 8 * 512 * 128 // 4]
    assert filled == layer * 3 * 2
