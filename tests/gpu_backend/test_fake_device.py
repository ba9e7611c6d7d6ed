"""A GPU as its driver tells of it (fake_cuda.c): refused, probed, launched upon, and too small."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from engine_script import CONFIG, EXPERTS
from fake_cuda import run

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")


@pytest.mark.parametrize("major", ["8", "11"])
def test_another_generation_is_refused_with_one_sentence(major: str, fake: Path, tmp_path: Path) -> None:
    script = """
from gpu_backend.cuda.driver import CudaUnavailable, Device
try:
    Device()
except CudaUnavailable as error:
    print(error)
"""
    out, _ = run(fake, tmp_path, script, FAKE_CUDA_ATTRIBUTE_75=major)
    assert out.startswith(f"Fake GPU has compute capability {major}.0; served are 8.9 (")
    assert "9.0 (Hopper: H100, H200, GH200)" in out


def test_the_probe_notices_a_gpu_that_accepts_work_and_does_none(fake: Path, tmp_path: Path) -> None:
    script = """
from gpu_backend.cuda.probe import probe
for finding in probe():
    print(finding.ok, finding.name, finding.detail, finding.mend, sep="|")
"""
    out, _ = run(fake, tmp_path, script, CONFIG)
    ok = {name: value == "True" for value, name, *_ in (line.split("|") for line in out.splitlines())}
    assert ok["GPU"]
    assert ok["driver"]
    assert not ok["pinned mapped memory"]
    assert not ok["device-side graph launch"]
    assert "0 of 4 runs" in out


def test_arguments_are_checked_against_the_kernel(fake: Path, tmp_path: Path) -> None:
    script = """
from gpu_backend.cuda.compile import compile_module, source_root
from gpu_backend.cuda.driver import Device, Module, Stream
device = Device()
cubin = compile_module(source_root() / "kernels" / "probe.cu", device.arch, rdc=True)
kernel = Module(cubin).kernel("blink_probe_parent")
one, stream = (1, 1, 1), Stream()
kernel.launch(one, one, stream, 2**40, 2**40, 3)
for arguments in ((1, 2), (1, 2, 0.5, 4), (b"1234", 2, 3)):
    try:
        kernel.launch(one, one, stream, *arguments)
    except TypeError as error:
        print(error)
"""
    out, log = run(fake, tmp_path, script, CONFIG)
    assert out.splitlines()[:2] == [
        "blink_probe_parent takes 3 arguments, got 2",
        "blink_probe_parent takes 3 arguments, got 4",
    ]
    assert out.splitlines()[2].startswith("parameter 0 of blink_probe_parent has 8 bytes")
    assert [call[7:] for call in log if call[0] == "launch"] == [
        ["0000000000010000", "0000000000010000", "03000000"]
    ]


def test_a_model_that_does_not_fit_is_refused_before_anything_is_loaded(fake: Path, tmp_path: Path) -> None:
    """With the numbers, whether the KV cache is given or takes what is left. The fake has 8.6 GB free."""
    script = """
from gpu_backend.engines.base import Limits
from gpu_backend.devices.gpu import GpuServingDevice
from gpu_backend.engines.native.builder import NativeEngineBuilder
from gpu_backend.models.registry import read_model

device = GpuServingDevice(0, NativeEngineBuilder())
wanted = Limits(
    max_batch=8, max_context=2048, max_prefill_tokens=64, max_prefill_slots=4, page_size=16, total_pages=0
)
for kv_memory in (None, 1 << 20):
    try:
        device.limits(read_model(Path(sys.argv[1])), wanted, kv_memory)
    except ValueError as error:
        print(error)
device.close()
"""
    out, log = run(fake, tmp_path, script, {**EXPERTS, "moe_intermediate_size": 8 << 20})
    lines = out.splitlines()
    assert len(lines) == 2
    for line, room in zip(lines, ("7.7", "8.6"), strict=True):
        assert re.match(
            r"the model does not fit: weights 412\.\d GB \+ KV cache of at least 0\.0 GB \+", line
        )
        assert line.endswith(f"of 8.6 GB of free GPU memory {room} GB may be used")
    assert not [call for call in log if call[0] == "alloc"]
