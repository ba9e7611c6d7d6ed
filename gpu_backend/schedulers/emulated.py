"""The scheduler on the CPU: the GPU's policy run by a host thread (kernels/scheduler/emulation.h)."""

from __future__ import annotations

import ctypes

from gpu_backend.engines.base import CalledEngine
from gpu_backend.host_library import host_library
from gpu_backend.schedulers.setup import SchedulerSetup


class EmulatedScheduler:
    """Runs from creation until the ring's control word stops it. `engine` must outlive it."""

    def __init__(self, setup: SchedulerSetup, engine: CalledEngine, policy_threads: int = 1) -> None:
        self._library = _declare(host_library())
        self._handle = self._library.blink_emulation_start(
            setup.config, engine.run_address, engine.context_address, policy_threads
        )

    def wait(self, timeout_s: float) -> bool:
        return bool(self._library.blink_emulation_wait(self._handle, int(timeout_s * 1000)))

    def error(self) -> int:
        return 0  # what fails on a CPU ends the process

    def violation(self) -> str:
        """The first of CUDA's launch rules that the policy broke, or ""."""
        text: bytes = self._library.blink_emulation_violation(self._handle)
        return text.decode()

    def close(self) -> None:
        if self._handle is not None:
            self._library.blink_emulation_destroy(self._handle)
            self._handle = None


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer = ctypes.c_void_p
    library.blink_emulation_start.restype = pointer
    library.blink_emulation_start.argtypes = [ctypes.c_char_p, pointer, pointer, ctypes.c_uint32]
    library.blink_emulation_wait.argtypes = [pointer, ctypes.c_uint32]
    library.blink_emulation_violation.restype = ctypes.c_char_p
    library.blink_emulation_violation.argtypes = [pointer]
    library.blink_emulation_destroy.argtypes = [pointer]
    return library
