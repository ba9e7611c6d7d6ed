"""Which device serves: the GPU where there is one, else its emulation on the CPU."""

from __future__ import annotations

from gpu_backend.cuda.driver import CudaUnavailable, NoGpu
from gpu_backend.devices.base import DeviceError, ServingDevice
from gpu_backend.devices.emulated import EmulatedServingDevice
from gpu_backend.devices.gpu import GpuServingDevice
from gpu_backend.engines.native.builder import NativeEngineBuilder
from gpu_backend.messages import say


def select_device(wanted: str, ordinal: int | None = None) -> ServingDevice:
    """`wanted` is auto, gpu or cpu: `auto` takes the GPU if there is one, else the CPU.

    `ordinal` asks for a GPU. Raises DeviceError.
    """
    if wanted not in ("auto", "gpu", "cpu"):
        raise DeviceError(f"device is '{wanted}', it must be auto, gpu or cpu")
    if wanted == "cpu":
        if ordinal is not None:
            raise DeviceError(f"--gpu {ordinal} is a GPU, and --device is cpu: leave one of them out")
        return EmulatedServingDevice()
    asked = wanted == "gpu" or ordinal is not None
    try:
        return GpuServingDevice(ordinal or 0, NativeEngineBuilder())
    except CudaUnavailable as error:
        if asked:
            raise DeviceError(f"no GPU to serve from: {error}") from error
        if not isinstance(error, NoGpu):
            raise DeviceError(
                f"cannot serve from the GPU: {error}; --device cpu to run the emulation anyway"
            ) from error
        say(f"serving from the CPU emulation: {error}")
        return EmulatedServingDevice()
