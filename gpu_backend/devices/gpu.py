"""A GPU that serves: everything lies in its memory; the ring there, or in pinned host memory."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from gpu_backend.cuda.compile import CompileError
from gpu_backend.cuda.compile_ahead import CompileAhead
from gpu_backend.cuda.driver import CudaError, CudaUnavailable, Device
from gpu_backend.cuda.memory import DeviceMemory, PinnedMemory
from gpu_backend.cuda.ring import GpuRing
from gpu_backend.cuda.toolkit import ToolkitError
from gpu_backend.devices.base import Defaults, DeviceError, Ring
from gpu_backend.engines.base import GraphEngine, Limits, Memory
from gpu_backend.engines.batch import allocate_batch, mirror, restart
from gpu_backend.engines.builder import GpuEngineBuilder
from gpu_backend.engines.graph_grid import GraphGrid
from gpu_backend.engines.vocabulary import store_vocabulary
from gpu_backend.models.description import Model
from gpu_backend.processors.loaded import NO_PROCESSORS, Processors
from gpu_backend.rdma.gpu_memory import export
from gpu_backend.rdma.target import ExportedMemory
from gpu_backend.schedulers.base import Scheduler, SchedulerKind
from gpu_backend.schedulers.echo import GpuEcho
from gpu_backend.schedulers.gpu import GpuScheduler, scheduler_source
from gpu_backend.schedulers.host_driven import HostDrivenError, HostDrivenScheduler
from gpu_backend.schedulers.setup import GPU_PACE, SchedulerSetup
from ringbuffer.region import Geometry, ModelFacts, create


class GpuServingDevice:
    """One GPU, and the engine that `builder` makes.

    Raises CudaUnavailable when there is no GPU that can launch graphs from the device.
    """

    defaults = Defaults(max_batch=128, max_prefill_tokens=2048, max_prefill_slots=16)

    def __init__(self, ordinal: int, builder: GpuEngineBuilder) -> None:
        self._builder = builder
        self._device = Device(ordinal)
        self.memory = DeviceMemory(self._device)
        self._pinned = PinnedMemory(self._device)
        self._scheduler_code: CompileAhead | None = None
        self.name, self.capability = self._device.name, self._device.capability

    def limits(
        self, config: Model, wanted: Limits, kv_memory: int | None, host_kv_memory: int | None = None
    ) -> Limits:
        return self._builder.limits(self._device, config, wanted, kv_memory, host_kv_memory)

    def build_engine(
        self,
        config: Model,
        directory: Path,
        limits: Limits,
        random: bool,
        threads: int | None,
        processors: Processors = NO_PROCESSORS,
    ) -> GraphEngine:
        self._scheduler_code = CompileAhead(scheduler_source(), self._device.arch)
        self._grid = GraphGrid(limits)
        shapes = self._grid.shapes
        sizes = limits, shapes, config.vocab_size, config.eos_ids
        self.batch = allocate_batch(self.memory, *sizes, processors.only_recent)
        if limits.grammar_words:
            store_vocabulary(self.memory, self.batch, directory)
        of = self._device, config, directory, random, limits, shapes, self.batch
        self.engine = self._builder.build(*of, processors.device_codes)
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
            raise DeviceError(
                f"cannot pin the ring ({error}): raise the locked-memory limit, ulimit -l"
            ) from error
        owned.callback(self.memory.unregister_host, region.address)
        return region, address

    def start_echo(self, ring_address: int, n_slots: int, step_ns: int) -> Scheduler:
        try:
            return GpuEcho(self._device, self.memory, ring_address, n_slots, step_ns)
        except (CudaError, CompileError, ToolkitError) as error:
            raise DeviceError(str(error)) from error

    def export_ring(self, ring: Ring) -> ExportedMemory | None:
        if not isinstance(ring, GpuRing):
            return None
        try:
            return export(self._device, ring.address, ring.n_bytes)
        except (CudaError, CudaUnavailable) as error:
            raise DeviceError(f"cannot offer the ring in GPU memory to other hosts: {error}") from error

    def _device_ring(
        self, path: Path, geometry: Geometry, facts: ModelFacts, owned: ExitStack
    ) -> tuple[Ring, int]:
        try:
            ring = GpuRing(self.memory, path, geometry, facts)
        except CudaError as error:
            raise DeviceError(f"cannot make the ring in GPU memory: {error}") from error
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
            memory, geometry, ring_address, limits, self._grid, batch, executables, GPU_PACE, kind.host_driven
        )

    def start(self, setup: SchedulerSetup, kind: SchedulerKind) -> Scheduler:
        try:
            if kind.host_driven:
                self._give_up_scheduler_code()  # nobody needs it, and it would disturb what is measured
                context = self._device.context
                return HostDrivenScheduler.on_gpu(kind, setup, self.batch, context, self.engine)
            if self._scheduler_code is not None:
                self._scheduler_code.wait()
            return GpuScheduler(self._device, setup)
        except (CudaError, CompileError, ToolkitError, HostDrivenError) as error:
            raise DeviceError(str(error)) from error

    def _give_up_scheduler_code(self) -> None:
        if self._scheduler_code is not None:
            self._scheduler_code.close()

    def close(self) -> None:
        self._give_up_scheduler_code()
        self._pinned.close()
        self.memory.close()
        self._device.close()
