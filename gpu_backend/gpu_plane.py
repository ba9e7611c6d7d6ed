"""The GPU's plane: everything that serves lies in its memory; the ring there, or in pinned host memory."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from gpu_backend.batch import allocate_batch, mirror, restart
from gpu_backend.cuda.compile import CompileError
from gpu_backend.cuda.cublas import CublasError
from gpu_backend.cuda.driver import CudaError, CudaUnavailable, Device
from gpu_backend.cuda.memory import DeviceMemory, PinnedMemory
from gpu_backend.cuda.ring import GpuRing
from gpu_backend.cuda.toolkit import ToolkitError
from gpu_backend.device import DeviceScheduler
from gpu_backend.driven import DrivenError, DrivenScheduler
from gpu_backend.echo import DeviceEcho
from gpu_backend.engine.base import Limits, Memory
from gpu_backend.engine.graph_grid import GraphGrid
from gpu_backend.engines.native.engine import NativeEngine
from gpu_backend.engines.native.sizing import mixed_share, needs, page_bytes, pages_that_fit
from gpu_backend.engines.native.weights import RandomWeights
from gpu_backend.model.checkpoint import Checkpoint, CheckpointError
from gpu_backend.model.config import ModelConfig
from gpu_backend.planes import Defaults, EngineHandle, PlaneError, Ring, with_pages
from gpu_backend.progress import ProgressLine
from gpu_backend.rdma.gpu_memory import export
from gpu_backend.rdma.target import ExportedMemory
from gpu_backend.scheduler import GPU_PACE, Scheduler, SchedulerKind, SchedulerSetup
from ringbuffer.region import Geometry, ModelFacts, create

RANDOM_SEED = 1


class GpuPlane:
    """One GPU. Raises CudaUnavailable when there is none that can launch graphs from the device."""

    defaults = Defaults(max_batch=128, max_prefill_tokens=2048, max_prefill_lanes=16)

    def __init__(self, ordinal: int) -> None:
        self._device = Device(ordinal)
        self.memory = DeviceMemory(self._device)
        self._pinned = PinnedMemory(self._device)
        self.name = self._device.name

    def limits(self, config: ModelConfig, wanted: Limits, kv_memory: int | None) -> Limits:
        wanted = replace(wanted, mixed_share=mixed_share(config))
        shapes, free_bytes = GraphGrid(wanted).shapes, self._device.free_bytes()
        processors = self._device.n_multiprocessors
        if kv_memory:
            page = page_bytes(config, wanted)
            limits = with_pages(wanted, kv_memory // page)
            kv_bytes = limits.total_pages * page
            needs(config, wanted, shapes, processors, kv_bytes).check(free_bytes, free_bytes)
            return limits
        return with_pages(wanted, pages_that_fit(config, wanted, shapes, free_bytes, processors))

    def build_engine(
        self, config: ModelConfig, directory: Path, limits: Limits, random: bool, threads: int | None
    ) -> EngineHandle:
        self._grid = GraphGrid(limits)
        self.batch = allocate_batch(self.memory, limits, self._grid.shapes, config.vocab_size, config.eos_ids)
        try:
            source = RandomWeights(RANDOM_SEED) if random else Checkpoint(directory)
            self.engine = NativeEngine(
                self._device, config, source, limits, self._grid.shapes, self.batch, ProgressLine()
            )
        except (CheckpointError, CudaError, CublasError, CompileError, ToolkitError) as error:
            raise PlaneError(str(error)) from error
        return self.engine

    def make_ring(
        self, transport: str, path: Path, geometry: Geometry, facts: ModelFacts, owned: ExitStack
    ) -> tuple[Ring, int]:
        if transport == "cuda_ipc":
            return self._device_ring(path, geometry, facts, owned)
        region = create(path, geometry, facts)
        owned.callback(region.close)
        try:
            address = self.memory.register_host(region.address, region.n_bytes)
        except CudaError as error:
            raise PlaneError(
                f"cannot pin the ring ({error}): raise the locked-memory limit, ulimit -l"
            ) from error
        owned.callback(self.memory.unregister_host, region.address)
        return region, address

    def start_echo(self, ring_address: int, n_slots: int, step_ns: int) -> Scheduler:
        try:
            return DeviceEcho(self._device, self.memory, ring_address, n_slots, step_ns)
        except (CudaError, CompileError, ToolkitError) as error:
            raise PlaneError(str(error)) from error

    def export_ring(self, ring: Ring) -> ExportedMemory | None:
        if not isinstance(ring, GpuRing):
            return None
        try:
            return export(self._device, ring.address, ring.n_bytes)
        except (CudaError, CudaUnavailable) as error:
            raise PlaneError(f"cannot offer the ring in GPU memory to other hosts: {error}") from error

    def _device_ring(
        self, path: Path, geometry: Geometry, facts: ModelFacts, owned: ExitStack
    ) -> tuple[Ring, int]:
        try:
            ring = GpuRing(self.memory, path, geometry, facts)
        except CudaError as error:
            raise PlaneError(f"cannot make the ring in GPU memory: {error}") from error
        owned.callback(ring.close)
        return ring, ring.address

    def setup(
        self, geometry: Geometry, ring_address: int, limits: Limits, kind: SchedulerKind
    ) -> SchedulerSetup:
        restart(self.memory, self.batch)
        memory: Memory = self._pinned if kind.host_driven else self.memory
        batch = mirror(memory, limits, self._grid, self.batch) if kind.host_driven else self.batch
        executables = None if kind.host_driven else self.engine.executables
        return SchedulerSetup(
            memory, geometry, ring_address, limits, self._grid, batch, executables, GPU_PACE
        )

    def start(self, setup: SchedulerSetup, kind: SchedulerKind) -> Scheduler:
        try:
            if kind.host_driven:
                context, executables = self._device.context, self.engine.executables
                return DrivenScheduler.on_gpu(kind, setup, self.batch, context, executables)
            return DeviceScheduler(self._device, setup)
        except (CudaError, CompileError, ToolkitError, DrivenError) as error:
            raise PlaneError(str(error)) from error

    def close(self) -> None:
        self._pinned.close()
        self.memory.close()
        self._device.close()
