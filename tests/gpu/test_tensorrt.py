"""The TensorRT engine computes what transformers computes, launched from the host and from a kernel.

It needs an edition of TensorRT that serves on this GPU (docs/tensorrt.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from device_launcher import DeviceLauncher
from native_rig import NativeRig, Reference, make_limits
from serving import Demo, items, serving
from test_native_logits import gemma3, llama, phi3, prompt, qwen2, qwen3

from gpu_backend.cuda.compile import compile_module, source_root
from gpu_backend.cuda.driver import Device, Module
from gpu_backend.engines.base import EngineError
from gpu_backend.engines.native.weights import RandomWeights
from gpu_backend.models.registry import read_model
from gpu_backend.weights.checkpoint import Checkpoint
from ringbuffer.abi import Reason

pytest.importorskip("onnx", reason="needs onnx: scripts/setup tensorrt")

from gpu_backend.engines.tensorrt.builder import loaded_plans, lowering_with, serving_library

PLANS_S = 1800.0  # the full library times kernels while it builds
MODELS: dict[str, tuple[Callable[[], transformers.PretrainedConfig], str]] = {
    "llama": (lambda: llama(), "bfloat16"),
    "llama-tied-fp16": (lambda: llama(tie_word_embeddings=True), "float16"),
    "qwen2": (lambda: qwen2(), "bfloat16"),
    "qwen3": (lambda: qwen3(), "bfloat16"),
    "phi3-fp16": (lambda: phi3(), "float16"),
    "gemma3": (lambda: gemma3(), "bfloat16"),
}


@pytest.fixture
def device() -> Iterator[Device]:
    device = Device()
    try:
        serving_library(device)
    except EngineError as error:
        pytest.skip(str(error))
    yield device
    device.close()


@pytest.fixture(scope="module", params=list(MODELS))
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    make, dtype = MODELS[request.param]
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(make(), dtype=getattr(torch, dtype))
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):  # not all ones, so that a missing or swapped norm shows
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    path = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(path)
    return path


def test_prompts_and_rows_that_decode(device: Device, directory: Path) -> None:
    """In steps of every kind and of many sizes."""
    config, limits = read_model(directory), make_limits()
    planning = lowering_with(loaded_plans(device, config, limits))
    rig = NativeRig(device, config, Checkpoint(directory), limits, planning)
    rows = [17, 4, 0, 23, 8, 11, 1, 2, 3]
    for row in rows:
        rig.driver.start(row, prompt(1 + row * 9))
        rig.prefill([(row, 0, 1 + row * 9)])
    rig.driver.start(20, prompt(300))
    rig.driver.start(21, prompt(180))
    rig.mixed(rows, [(20, 0, 40)])
    rig.mixed(rows[:3], [(20, 40, 130)])
    rig.mixed(rows[:1], [(20, 130, 300), (21, 0, 1)])
    rig.prefill([(21, 1, 180)])
    for n in (9, 8, 4, 3, 2, 1):
        rig.decode([20, 21, *rows][:n])
    Reference(directory, transformers.AutoConfig.from_pretrained(directory).dtype).check(rig)
    rig.close()


def test_a_kernel_launches_what_the_host_launches(device: Device, tmp_path: Path) -> None:
    """More often than one run of a graph may launch others."""
    llama(num_hidden_layers=4, architectures=["LlamaForCausalLM"], dtype="bfloat16").save_pretrained(tmp_path)
    config, limits = read_model(tmp_path), make_limits()
    module = Module(compile_module(source_root() / "kernels" / "probe.cu", device.arch, rdc=True))
    answers = []
    for on_device in (False, True):
        planning = lowering_with(loaded_plans(device, config, limits))
        rig = NativeRig(device, config, RandomWeights(7), limits, planning)
        if on_device:
            rig.driver.run = DeviceLauncher(rig, module.kernel("blink_probe_parent"), 300).run
        for row in range(3):
            rig.driver.start(row, prompt(100, seed=row))
            rig.prefill([(row, 0, 60)])
            rig.prefill([(row, 60, 100)])
        for _ in range(6):
            rig.decode([2, 0, 1])
        answers.append(rig.seen)
        rig.close()
    module.close()
    for (row, position, logits, token), (row2, position2, logits2, token2) in zip(*answers, strict=True):
        assert (row, position, token) == (row2, position2, token2)
        assert np.array_equal(logits, logits2)


def test_the_scheduler_on_the_gpu_serves_with_it(device: Device) -> None:
    """Beside the scheduler, which keeps a multiprocessor from what plans launch."""
    flags = ("--engine", "tensorrt", "--max-batch", "16")
    with serving("gpu-tensorrt", *flags, start_s=PLANS_S) as (_, region):
        demo = Demo(region)
        chosen = items(("add", "reverse", "spell", "count_long"), 32)
        streams = demo.answer(chosen)
        assert [stream.reason for stream in streams] == [Reason.EOS] * len(streams)
        right = sum(demo.right(item, stream) for item, stream in zip(chosen, streams, strict=True))
        assert right >= 0.9 * len(chosen)
        demo.client.close()
