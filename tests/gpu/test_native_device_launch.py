"""Executables run when a kernel launches them, and compute what they compute when the host does."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from device_launcher import DeviceLauncher
from model_config import model_config
from native_rig import NativeRig, make_limits

from gpu_backend.cuda.compile import compile_module, source_root
from gpu_backend.cuda.driver import Device, Module
from gpu_backend.engines.native.weights import RandomWeights

CONFIG = model_config(
    n_layers=4,
    intermediate=1536,
    vocab_size=4000,
    max_context=512,
    norm_eps=1e-6,
    qk_norm=True,
)
MANY = 300  # beyond the 120 launches that one run of a graph may make


@pytest.fixture
def device() -> Iterator[Device]:
    device = Device()
    yield device
    device.close()


@pytest.mark.parametrize("runs", [1, MANY])
def test_device_launches_compute_what_host_launches_compute(device: Device, runs: int) -> None:
    module = Module(compile_module(source_root() / "kernels" / "probe.cu", device.arch, rdc=True))
    answers = []
    for on_device in (False, True):
        rig = NativeRig(device, CONFIG, RandomWeights(7), make_limits())
        if on_device:
            rig.driver.run = DeviceLauncher(rig, module.kernel("blink_probe_parent"), runs).run
        for row in range(3):
            tokens = np.random.default_rng(row).integers(0, CONFIG.vocab_size, 100).tolist()
            rig.driver.start(row, tokens)
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
