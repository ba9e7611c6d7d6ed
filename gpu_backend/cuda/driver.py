"""A thin checked layer over the CUDA driver API (cuda-bindings): device, stream, module, kernel launch.

Every stream here is non-blocking (C1); what waits for the whole device belongs before the scheduler's start
or after its end (C2).
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import lru_cache
from typing import Any

from gpu_backend.arithmetic import ceil_div
from gpu_backend.cuda.chip import SERVED, Capability, Chip, arch_of
from ringbuffer.version import install

NO_DEVICE, STUB_LIBRARY = 100, 34  # CUresult
POLL_S = 0.002
SHARED_BYTES = 48 << 10  # of dynamic shared memory, which every kernel may have
ALL_SHARED_BYTES = 228 << 10  # that a multiprocessor can divide off its L1


class CudaError(RuntimeError):
    """A driver call failed: `name` is the CUresult, `text` its description, `call` the function."""

    def __init__(self, name: str, text: str, call: str) -> None:
        super().__init__(f"{call}: {name} ({text})")
        self.name = name
        self.text = text
        self.call = call


class CudaUnavailable(RuntimeError):
    """This machine cannot run the CUDA engine; the message says what is missing and how to get it."""


class NoGpu(CudaUnavailable):
    """There is no NVIDIA driver, or it sees no GPU: nothing here that could be mended."""


def initialize() -> None:
    """cuInit without the bindings, which are of no use where there is no GPU. Raises CudaUnavailable."""
    try:
        result = ctypes.CDLL("libcuda.so.1").cuInit(0)
    except OSError as error:
        raise NoGpu("no NVIDIA driver: libcuda.so.1 cannot be loaded") from error
    if result in (NO_DEVICE, STUB_LIBRARY):
        raise NoGpu("the NVIDIA driver sees no GPU")
    if result != 0:
        raise CudaUnavailable(f"the NVIDIA driver found no usable GPU: cuInit returned {result}")


@lru_cache(maxsize=1)
def api() -> Any:
    """The initialized driver API. Raises CudaUnavailable."""
    # Lazy loading could load a kernel for the first time behind the persistent kernel, and deadlock.
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    initialize()
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise CudaUnavailable(f"no cuda-bindings: {install('gpu')}") from error
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

    Raises CudaUnavailable if the GPU does not exist or its compute capability is not one of SERVED.
    """

    def __init__(self, ordinal: int = 0) -> None:
        count = call("cuDeviceGetCount")
        if not 0 <= ordinal < count:
            raise CudaUnavailable(f"GPU {ordinal} does not exist: the driver sees {count}")
        self.ordinal = ordinal
        self._device = call("cuDeviceGet", ordinal)
        self.name: str = call("cuDeviceGetName", 128, self._device).split(b"\0")[0].decode()
        attribute = api().CUdevice_attribute
        self.capability: Capability = (
            self.attribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            self.attribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        )
        if self.capability not in SERVED:
            major, minor = self.capability
            served = ", ".join(f"{one[0]}.{one[1]} ({names})" for one, names in SERVED.items())
            raise CudaUnavailable(f"{self.name} has compute capability {major}.{minor}; served are {served}")
        self.total_bytes: int = call("cuDeviceTotalMem", self._device)
        self.n_multiprocessors = self.attribute(attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        self._context = call("cuDevicePrimaryCtxRetain", self._device)
        self._owned = ExitStack()
        self._owned.callback(call, "cuDevicePrimaryCtxRelease", self._device)
        self.make_current()

    @property
    def context(self) -> int:
        """The CUcontext, for native threads that make it current themselves."""
        return int(self._context)

    @property
    def arch(self) -> str:
        return arch_of(self.capability)

    @property
    def chip(self) -> Chip:
        return Chip(self.n_multiprocessors, self.capability)

    def attribute(self, attribute: Any) -> int:
        """Value of a CUdevice_attribute, by member or number."""
        return int(call("cuDeviceGetAttribute", api().CUdevice_attribute(int(attribute)), self._device))

    def uuid(self) -> bytes:
        """16 bytes: the GPU's name in every process, whatever CUDA_VISIBLE_DEVICES hides."""
        return bytes(call("cuDeviceGetUuid", self._device).bytes)

    def driver_version(self) -> tuple[int, int]:
        version = int(call("cuDriverGetVersion"))
        return version // 1000, version % 1000 // 10

    def make_current(self) -> None:
        """Every thread that calls the driver needs this first."""
        call("cuCtxSetCurrent", self._context)

    def free_bytes(self) -> int:
        self.make_current()
        return int(call("cuMemGetInfo")[0])

    def before_close(self, release: Callable[[], None]) -> None:
        """`release` is called while the context is still there, and current; the last given goes first."""
        self._owned.callback(release)
        self._owned.callback(self.make_current)

    def close(self) -> None:
        self._owned.close()


class Stream:
    """A non-blocking stream."""

    def __init__(self) -> None:
        self.handle = call("cuStreamCreate", int(api().CUstream_flags.CU_STREAM_NON_BLOCKING))
        self.address = int(self.handle)

    def synchronize(self) -> None:
        call("cuStreamSynchronize", self.handle)

    def wait(self, timeout_s: float) -> bool:
        """True once what was enqueued has ended, well or not.

        Polls and never blocks in the driver, whose locks a hung GPU would keep.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            (status,) = api().cuStreamQuery(self.handle)
            if status != api().CUresult.CUDA_ERROR_NOT_READY:
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)

    def error(self) -> int:
        """The CUresult by which what was enqueued has failed; 0 where it has not, or still runs."""
        (status,) = api().cuStreamQuery(self.handle)
        return 0 if status == api().CUresult.CUDA_ERROR_NOT_READY else int(status)

    def close(self) -> None:
        if self.handle is not None:
            call("cuStreamDestroy", self.handle)
            self.handle = None


def programmatic_serialization() -> Any:
    """The launch attribute that lets a kernel start before its predecessor on the stream has ended."""
    driver = api()
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    return attribute


def cluster_dimension(blocks: int) -> Any:
    """The launch attribute that makes clusters of `blocks` neighbours along x, which run at once."""
    driver = api()
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    dim = attribute.value.clusterDim
    dim.x, dim.y, dim.z = blocks, 1, 1
    return attribute


def memory_division(shared_bytes: int) -> Any:
    """The launch attribute that has a multiprocessor divide as much off its L1, if it is idle when the kernel
    comes, and at least what the kernel's blocks need."""
    driver = api()
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
    attribute.value.sharedMemCarveout = ceil_div(100 * shared_bytes, ALL_SHARED_BYTES)
    return attribute


class Module:
    """A loaded cubin."""

    def __init__(self, cubin: bytes) -> None:
        self._module = call("cuModuleLoadData", cubin)

    def kernel(self, symbol: str) -> Kernel:
        """Raises CudaError CUDA_ERROR_NOT_FOUND if the module has no such kernel."""
        return Kernel(symbol, call("cuModuleGetFunction", self._module, symbol.encode()))

    def close(self) -> None:
        if self._module is not None:
            call("cuModuleUnload", self._module)
            self._module = None


Dim = tuple[int, int, int]
Argument = int | float | bytes  # an address or uint32, a float, a struct by value


class Kernel:
    """A kernel and the sizes of its parameters, by which arguments are converted and checked."""

    def __init__(self, symbol: str, function: Any) -> None:
        self.symbol = symbol
        self.function = function
        self._sizes: list[int] = []
        while True:
            status, _, size = api().cuFuncGetParamInfo(function, len(self._sizes))
            if int(status) != 0:  # CUDA_ERROR_INVALID_VALUE: past the last one
                break
            self._sizes.append(int(size))
        self._shared_limit = SHARED_BYTES

    def _allow_shared(self, n_bytes: int) -> None:
        """Dynamic shared memory beyond SHARED_BYTES must be asked for."""
        if n_bytes > self._shared_limit:
            attribute = api().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call("cuFuncSetAttribute", self.function, attribute, n_bytes)
            self._shared_limit = n_bytes

    def launch(
        self,
        grid: Dim,
        block: Dim,
        stream: Stream,
        *arguments: Argument,
        shared_bytes: int = 0,
        overlap: bool = False,
        cluster: int = 0,
        divided: int = 0,
    ) -> None:
        """Launches the kernel, or captures it if the stream is capturing. Raises TypeError, CudaError.

        `overlap`: it may start while the kernel before it on the stream still runs (programmatic dependent
        launch), and waits for it itself. `cluster`: blocks along x that form a cluster, 0 for none.
        `divided`: bytes of shared memory that a multiprocessor is to divide off its L1, 0 for the driver's
        choice.
        """
        if len(arguments) != len(self._sizes):
            raise TypeError(f"{self.symbol} takes {len(self._sizes)} arguments, got {len(arguments)}")
        self._allow_shared(shared_bytes)
        values = [self._convert(i, argument) for i, argument in enumerate(arguments)]
        # The driver copies the values before it returns, so they may die with this frame.
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        address = ctypes.addressof(pointers)
        config = api().CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes, config.hStream = shared_bytes, stream.handle
        attributes = [programmatic_serialization()] if overlap else []
        attributes += [cluster_dimension(cluster)] if cluster else []
        attributes += [memory_division(divided)] if divided else []
        config.attrs, config.numAttrs = attributes, len(attributes)
        call("cuLaunchKernelEx", config, self.function, address, 0)

    def _convert(self, index: int, argument: Argument) -> Any:
        value: Any
        size = self._sizes[index]
        if isinstance(argument, bytes):
            value = (ctypes.c_char * len(argument)).from_buffer_copy(argument)
        elif isinstance(argument, float):
            value = ctypes.c_float(argument)
        else:
            value = ctypes.c_uint64(argument) if size == 8 else ctypes.c_uint32(argument)
        if ctypes.sizeof(value) != size:
            raise TypeError(f"parameter {index} of {self.symbol} has {size} bytes: {argument!r} does not fit")
        return value
