"""The scheduler on the GPU: a one-node device graph, launched once, that relaunches itself from then on."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from gpu_backend.cuda.compile import compile_module, source_root
from gpu_backend.cuda.driver import Device, Module, Stream
from gpu_backend.cuda.graph import Graph
from gpu_backend.scheduler_abi import SCHEDULER_THREADS
from gpu_backend.schedulers.setup import SchedulerSetup


def scheduler_source() -> Path:
    """What GpuScheduler compiles, for the device's architecture."""
    return source_root() / "kernels" / "scheduler" / "scheduler.cu"


class GpuScheduler:
    """Runs from creation until the ring's control word stops it; this process is not needed meanwhile.

    Raises CompileError, ToolkitError, CudaError.
    """

    def __init__(self, device: Device, setup: SchedulerSetup) -> None:
        device.make_current()
        self._device = device
        with ExitStack() as owned:
            module = Module(compile_module(scheduler_source(), device.arch, rdc=True))
            owned.callback(module.close)
            self._stream = Stream()
            owned.callback(self._stream.close)
            graph = Graph()
            owned.callback(graph.close)
            with graph.capture(self._stream):
                module.kernel("blink_scheduler").launch(
                    (1, 1, 1), (SCHEDULER_THREADS, 1, 1), self._stream, setup.config
                )
            graph.instantiate(self._stream)
            self._owned = owned.pop_all()
        graph.launch(self._stream)

    def wait(self, timeout_s: float) -> bool:
        """True once it has stopped."""
        self._device.make_current()
        return self._stream.wait(timeout_s)

    def error(self) -> int:
        return self._stream.error()

    def close(self) -> None:
        self._device.make_current()
        self._owned.close()
