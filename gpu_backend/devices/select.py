"""Which device serves: the GPU where there is one, else its emulation on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpu_backend.cuda.driver import CudaUnavailable, NoGpu
from gpu_backend.devices.base import DeviceError, ServingDevice
from gpu_backend.devices.emulated import EmulatedServingDevice
from gpu_backend.devices.gpu import GpuServingDevice
from gpu_backend.engines.builder import GpuEngineBuilder
from gpu_backend.engines.native.builder import NativeEngineBuilder
from gpu_backend.engines.native.lowering import OWN_KERNELS, Lowering
from gpu_backend.engines.tensorrt.step import lower_step
from gpu_backend.messages import say
from ringbuffer.version import install


def tensorrt_builder() -> GpuEngineBuilder:
    """Raises DeviceError where what it needs is not installed."""
    try:
        from gpu_backend.engines.tensorrt.builder import TensorRtEngineBuilder
    except ImportError as error:
        needed = f"--engine tensorrt needs {error.name}: {install('tensorrt')}"
        raise DeviceError(needed) from error
    return TensorRtEngineBuilder()


class EngineKind(NamedTuple):
    """What makes an engine's builder, and how its steps are planned where there is no GPU to build on."""

    builder: Callable[[], GpuEngineBuilder]
    lowering: Lowering


# How a model's steps are computed on a GPU, by what --engine takes.
NATIVE = "native"
ENGINES = {
    NATIVE: EngineKind(NativeEngineBuilder, OWN_KERNELS),
    "tensorrt": EngineKind(tensorrt_builder, Lowering(lower_step, scratch_bytes=None)),
}


def select_device(wanted: str, ordinal: int | None = None, engine: str = NATIVE) -> ServingDevice:
    """`wanted` is auto, gpu or cpu: `auto` takes the GPU if there is one, else the CPU.

    `ordinal`, and an `engine` other than the native one, ask for a GPU. Raises DeviceError.
    """
    if engine not in ENGINES:
        raise DeviceError(f"engine is '{engine}', it must be {' or '.join(ENGINES)}")
    if wanted not in ("auto", "gpu", "cpu"):
        raise DeviceError(f"device is '{wanted}', it must be auto, gpu or cpu")
    if wanted == "cpu":
        if ordinal is not None:
            raise DeviceError(f"--gpu {ordinal} is a GPU, and --device is cpu: leave one of them out")
        if engine != NATIVE:
            raise DeviceError(f"--engine {engine} needs a GPU, and --device is cpu: leave one of them out")
        return EmulatedServingDevice()
    asked = wanted == "gpu" or ordinal is not None or engine != NATIVE
    try:
        return GpuServingDevice(ordinal or 0, ENGINES[engine].builder())
    except CudaUnavailable as error:
        if asked:
            raise DeviceError(f"no GPU to serve from: {error}") from error
        if not isinstance(error, NoGpu):
            raise DeviceError(
                f"cannot serve from the GPU: {error}; --device cpu to run the emulation anyway"
            ) from error
        say(f"serving from the CPU emulation: {error}")
        return EmulatedServingDevice()
