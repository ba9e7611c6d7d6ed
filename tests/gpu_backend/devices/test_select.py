"""Which device serves, by what is asked for and what there is."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest

from gpu_backend.cuda.driver import CudaUnavailable, NoGpu
from gpu_backend.devices import select
from gpu_backend.devices.base import DeviceError, ServingDevice
from gpu_backend.devices.select import select_device
from ringbuffer.version import install


def raising(error: Exception) -> Callable[..., ServingDevice]:
    def make(*arguments: object) -> ServingDevice:
        raise error

    return make


def test_auto_falls_back_only_where_there_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(select, "GpuServingDevice", raising(NoGpu("no NVIDIA driver")))
    assert select_device("auto").name == "cpu"
    assert "serving from the CPU emulation: no NVIDIA driver" in capsys.readouterr().err
    monkeypatch.setattr(select, "GpuServingDevice", raising(CudaUnavailable("capability 8.0")))
    with pytest.raises(DeviceError, match=r"capability 8\.0; --device cpu to run the emulation"):
        select_device("auto")
    assert select_device("cpu").name == "cpu"


@pytest.mark.parametrize("device", ["auto", "gpu"])
def test_a_gpu_that_is_named_is_not_replaced(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr(select, "GpuServingDevice", raising(NoGpu("no NVIDIA driver")))
    with pytest.raises(DeviceError, match="no GPU to serve from: no NVIDIA driver"):
        select_device(device, 0)
    with pytest.raises(DeviceError, match="--gpu 0 is a GPU, and --device is cpu"):
        select_device("cpu", 0)


def test_an_engine_other_than_the_native_one_asks_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "GpuServingDevice", raising(NoGpu("no NVIDIA driver")))
    with pytest.raises(DeviceError, match="no GPU to serve from: no NVIDIA driver"):
        select_device("auto", engine="tensorrt")
    with pytest.raises(DeviceError, match="--engine tensorrt needs a GPU, and --device is cpu"):
        select_device("cpu", engine="tensorrt")
    with pytest.raises(DeviceError, match="engine is 'vllm', it must be native or tensorrt"):
        select_device("auto", engine="vllm")


def test_what_an_engine_needs_is_asked_for_when_it_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend without the extra serves from the native engine."""
    name = "gpu_backend.engines.tensorrt.builder"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delitem(sys.modules, "gpu_backend.engines.tensorrt.plans", raising=False)
    monkeypatch.delitem(sys.modules, "gpu_backend.engines.tensorrt.onnx_graph", raising=False)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(DeviceError, match=re.escape(f"tensorrt needs onnx: {install('tensorrt')}")):
        select_device("gpu", engine="tensorrt")
