"""Host-driven schedulers, to compare with: a native thread plans and launches every step (driven.h)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from gpu_backend.engines.base import Batch, CalledEngine, GraphEngine
from gpu_backend.host_library import host_library
from gpu_backend.schedulers.base import SchedulerKind
from gpu_backend.schedulers.setup import SchedulerSetup

ERROR_BYTES = 256


class HostDrivenError(RuntimeError):
    """The scheduler could not start; says why."""


class HostDrivenScheduler:
    """Runs from creation until the ring's control word stops it. `batch` is the engine's, `setup` the host's.

    Use `on_gpu` or `emulated`; both raise HostDrivenError. What they are given must outlive the scheduler.
    """

    def __init__(
        self, start: str, kind: SchedulerKind, setup: SchedulerSetup, batch: Batch, *rest: Any
    ) -> None:
        self._library = _declare(host_library())
        error = ctypes.create_string_buffer(ERROR_BYTES)
        tables, sets = np.asarray(batch.tables).tobytes(), np.asarray(batch.step_sets).tobytes()
        self._handle = getattr(self._library, start)(
            kind.encode(), setup.config, tables, sets, *rest, error, ERROR_BYTES
        )
        if not self._handle:
            raise HostDrivenError(f"the {kind} scheduler cannot start: {error.value.decode()}")

    @classmethod
    def on_gpu(
        cls, kind: SchedulerKind, setup: SchedulerSetup, batch: Batch, context: int, engine: GraphEngine
    ) -> HostDrivenScheduler:
        """`context` is the CUcontext that the engine's graphs were made in."""
        handles = np.ascontiguousarray(engine.executables)
        return cls("blink_driven_start_cuda", kind, setup, batch, context, handles.ctypes.data)

    @classmethod
    def emulated(
        cls, kind: SchedulerKind, setup: SchedulerSetup, batch: Batch, engine: CalledEngine
    ) -> HostDrivenScheduler:
        """Over threads in place of streams; the engine is called as by EmulatedScheduler."""
        addresses = engine.run_address, engine.context_address
        return cls("blink_driven_start_emulated", kind, setup, batch, *addresses)

    def wait(self, timeout_s: float) -> bool:
        return bool(self._library.blink_driven_wait(self._handle, int(timeout_s * 1000)))

    def error(self) -> int:
        return 0  # it sees the driver's errors itself, and fails by them

    def cpu_ns(self) -> int:
        """Processor time that the scheduler's thread has used, waiting included."""
        return int(self._library.blink_driven_cpu_ns(self._handle))

    def slow_down(self, work_ns: int) -> None:
        """From now on its thread keeps busy for so long before each step, as a host with more to do would."""
        self._library.blink_driven_slow_down(self._handle, work_ns)

    def close(self) -> None:
        if self._handle is not None:
            self._library.blink_driven_destroy(self._handle)
            self._handle = None


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """Argument types of kernels/scheduler/driven/driven.h."""
    pointer, text, u32 = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32
    for name in ("blink_driven_start_emulated", "blink_driven_start_cuda"):
        function = getattr(library, name)
        function.restype = pointer
        function.argtypes = [text, text, text, text, pointer, pointer, text, u32]
    library.blink_driven_wait.argtypes = [pointer, u32]
    library.blink_driven_cpu_ns.restype = ctypes.c_uint64
    library.blink_driven_cpu_ns.argtypes = [pointer]
    library.blink_driven_slow_down.argtypes = [pointer, ctypes.c_uint64]
    library.blink_driven_destroy.argtypes = [pointer]
    return library
