"""A thin checked layer over the CUDA driver API (cuda-bindings): device, stream, module, kernel launch.

Hazards while the scheduler's persistent kernel runs: every stream here is non-blocking, because work on the
legacy default stream waits for that kernel; allocation, free, module load and context synchronization wait for
it too and belong before its start or after its end.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

MIN_CAPABILITY = (9, 0)


class CudaError(RuntimeError):
    """A driver call failed: `name` is the CUresult, `text` its description, `call` the function."""

    def __init__(self, name: str, text: str, call: str) -> None:
        super().__init__(f"{call}: {name} ({text})")
        self.name = name
        self.text = text
        self.call = call


class CudaUnavailable(RuntimeError):
    """This machine cannot run the CUDA engine; the message says what is missing and how to get it."""


@lru_cache(maxsize=1)
def api() -> Any:
    """The initialized driver API. Raises CudaUnavailable."""
    # Lazy loading could load a kernel for the first time behind the persistent kernel, and deadlock.
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise CudaUnavailable("no cuda-bindings: pip install 'blink-serving[gpu]'") from error
    try:
        (result,) = driver.cuInit(0)
    except (RuntimeError, OSError) as error:  # raised by the bindings when libcuda cannot be loaded
        raise CudaUnavailable("no NVIDIA driver: libcuda.so.1 cannot be loaded") from error
    if int(result) != 0:
        raise CudaUnavailable(f"the NVIDIA driver found no usable GPU: cuInit returned {result.name}")
    return driver


def check(result: tuple[Any, ...], call: str) -> Any:
    """The values after the CUresult of a binding's return tuple: none, one, or a tuple. Raises CudaError."""
    status, *values = result
    if int(status) != 0:
        text = api().cuGetErrorString(status)[1]
        raise CudaError(status.name, text.decode() if text else "no description", call)
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


def call(name: str, *arguments: Any) -> Any:
    """Calls the driver function `name` and checks its result."""
    return check(getattr(api(), name)(*arguments), name)


class Device:
    """One GPU and its primary context, current in the creating thread.

    Raises CudaUnavailable if the GPU does not exist or its compute capability is below 9.0.
    """

    def __init__(self, ordinal: int = 0) -> None:
        count = call("cuDeviceGetCount")
        if not 0 <= ordinal < count:
            raise CudaUnavailable(f"GPU {ordinal} does not exist: the driver sees {count}")
        self.ordinal = ordinal
        self._device = call("cuDeviceGet", ordinal)
        self.name: str = call("cuDeviceGetName", 128, self._device).split(b"\0")[0].decode()
        attribute = api().CUdevice_attribute
        self.capability = (
            self.attribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            self.attribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        )
        if self.capability < MIN_CAPABILITY:
            major, minor = self.capability
            raise CudaUnavailable(
                f"{self.name} has compute capability {major}.{minor}; "
                "device-side graph launch needs 9.0 (Hopper) or later"
            )
        self.total_bytes: int = call("cuDeviceTotalMem", self._device)
        self._context = call("cuDevicePrimaryCtxRetain", self._device)
        self._open = True
        self.make_current()

    @property
    def arch(self) -> str:
        """What NVRTC compiles for: "sm_90"."""
        return f"sm_{self.capability[0]}{self.capability[1]}"

    def attribute(self, attribute: Any) -> int:
        """Value of a CUdevice_attribute, by member or number."""
        return int(call("cuDeviceGetAttribute", api().CUdevice_attribute(int(attribute)), self._device))

    def driver_version(self) -> tuple[int, int]:
        version = int(call("cuDriverGetVersion"))
        return version // 1000, version % 1000 // 10

    def make_current(self) -> None:
        """Every thread that calls the driver needs this first."""
        call("cuCtxSetCurrent", self._context)

    def free_bytes(self) -> int:
        self.make_current()
        return int(call("cuMemGetInfo")[0])

    def close(self) -> None:
        if self._open:
            self._open = False
            call("cuDevicePrimaryCtxRelease", self._device)


class Stream:
    """A non-blocking stream."""

    def __init__(self) -> None:
        self.handle = call("cuStreamCreate", int(api().CUstream_flags.CU_STREAM_NON_BLOCKING))
        self.address = int(self.handle)

    def synchronize(self) -> None:
        call("cuStreamSynchronize", self.handle)

    def close(self) -> None:
        if self.handle is not None:
            call("cuStreamDestroy", self.handle)
            self.handle = None


class Module:
    """A loaded cubin."""

    def __init__(self, cubin: bytes) -> None:
        self._module = call("cuModuleLoadData", cubin)

    def function(self, name: str, dynamic_shared_bytes: int = 0) -> Any:
        """The kernel `name`, allowed that much dynamic shared memory. Raises CudaError if there is none."""
        function = call("cuModuleGetFunction", self._module, name.encode())
        if dynamic_shared_bytes > 48 * 1024:
            attribute = api().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call("cuFuncSetAttribute", function, attribute, dynamic_shared_bytes)
        return function

    def close(self) -> None:
        if self._module is not None:
            call("cuModuleUnload", self._module)
            self._module = None


Dim = tuple[int, int, int]


def launch(
    function: Any, grid: Dim, block: Dim, shared_bytes: int, stream: Stream, arguments: Sequence[Any]
) -> None:
    """Launches (or captures) a kernel. `arguments` are ctypes objects of exactly the parameters' types."""
    # The driver copies the arguments before it returns, so the arrays may die with this frame.
    pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
    call(
        "cuLaunchKernel", function, *grid, *block, shared_bytes, stream.handle, ctypes.addressof(pointers), 0
    )
