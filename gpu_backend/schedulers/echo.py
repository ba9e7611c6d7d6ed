"""The echo that answers in the scheduler's place (kernels/echo/echo.h), for `blink bench transport`."""

from __future__ import annotations

import ctypes
import time
from contextlib import ExitStack

from gpu_backend.cuda.compile import compile_module, source_root
from gpu_backend.cuda.driver import Device, Module, Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.host_library import host_library
from gpu_backend.kernel_abi.echo import EchoSlot
from gpu_backend.scheduler_abi import SCHEDULER_THREADS

POLL_S = 0.002


class GpuEcho:
    """One persistent block on the GPU, from creation until the ring's control word stops it.

    Raises CompileError, ToolkitError, CudaError.
    """

    def __init__(self, device: Device, memory: DeviceMemory, ring: int, n_slots: int, step_ns: int) -> None:
        device.make_current()
        self._device = device
        with ExitStack() as owned:
            source = source_root() / "kernels" / "echo" / "echo.cu"
            module = Module(compile_module(source, device.arch, rdc=True))
            owned.callback(module.close)
            self._stream = Stream()
            owned.callback(self._stream.close)
            slots = memory.allocate(EchoSlot.itemsize * n_slots)
            module.kernel("blink_echo").launch(
                (1, 1, 1), (SCHEDULER_THREADS, 1, 1), self._stream, ring, slots, step_ns
            )
            self._owned = owned.pop_all()

    def wait(self, timeout_s: float) -> bool:
        """True once it has stopped."""
        self._device.make_current()
        return self._stream.wait(timeout_s)

    def error(self) -> int:
        return self._stream.error()

    def close(self) -> None:
        self._device.make_current()
        self._owned.close()


class HostEcho:
    """One thread of this process that polls without a pause. Raises LibraryError."""

    def __init__(self, ring: int, n_slots: int, step_ns: int) -> None:
        self._library = host_library()
        pointer = ctypes.c_void_p
        self._library.blink_host_echo_start.restype = pointer
        self._library.blink_host_echo_start.argtypes = [pointer, ctypes.c_uint32, ctypes.c_uint64]
        self._library.blink_host_echo_stopped.argtypes = [pointer]
        self._library.blink_host_echo_destroy.argtypes = [pointer]
        self._echo = self._library.blink_host_echo_start(ring, n_slots, step_ns)

    def wait(self, timeout_s: float) -> bool:
        """True once it has stopped."""
        deadline = time.monotonic() + timeout_s
        while not self._library.blink_host_echo_stopped(self._echo):
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        return True

    def error(self) -> int:
        return 0  # what fails on a CPU ends the process

    def close(self) -> None:
        self._library.blink_host_echo_destroy(self._echo)
