"""The emulation: the scheduler's source and the reference engine, in this process's memory."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from gpu_backend.cuda.chip import HOPPER
from gpu_backend.devices.base import Defaults, DeviceError, Ring
from gpu_backend.engines.base import MIXED_SHARE, CalledEngine, EngineError, Limits
from gpu_backend.engines.batch import allocate_batch, mirror, restart, store_processors
from gpu_backend.engines.graph_grid import GraphGrid
from gpu_backend.engines.kv_pages import with_host_pages, with_pages
from gpu_backend.engines.reference import HostMemory, ReferenceEngine
from gpu_backend.engines.vocabulary import store_vocabulary
from gpu_backend.host_library import LibraryError
from gpu_backend.models.description import Model
from gpu_backend.processors.loaded import NO_PROCESSORS, Processors
from gpu_backend.rdma.target import ExportedMemory
from gpu_backend.schedulers.base import Scheduler, SchedulerKind
from gpu_backend.schedulers.echo import HostEcho
from gpu_backend.schedulers.emulated import EmulatedScheduler
from gpu_backend.schedulers.host_driven import HostDrivenScheduler
from gpu_backend.schedulers.setup import CPU_PACE, SchedulerSetup
from gpu_backend.weights.checkpoint import Checkpoint
from gpu_backend.weights.safetensors import CheckpointError
from ringbuffer.host_memory import available_bytes
from ringbuffer.region import Geometry, ModelFacts, create

CPU_KV_BYTES = 1 << 30
HOST_ELEMENT = 4  # the reference engine computes in fp32


def default_threads() -> int:
    """All processors but one, which the frontend and the policy share."""
    return max(1, (os.cpu_count() or 1) - 1)


class EmulatedServingDevice:
    """A GPU emulated on the CPU: for machines without one, and the oracle of the tests."""

    defaults = Defaults(max_batch=32, max_prefill_tokens=512, max_prefill_slots=8)
    capability = HOPPER

    def __init__(self) -> None:
        self.name = "cpu"
        self.memory = HostMemory()

    def limits(
        self, config: Model, wanted: Limits, kv_memory: int | None, host_kv_memory: int | None = None
    ) -> Limits:
        per_page = 2 * HOST_ELEMENT * config.n_layers * config.n_kv_heads * config.head_dim * wanted.page_size
        weight_bytes, room = HOST_ELEMENT * config.n_elements, available_bytes()
        if weight_bytes > room:
            raise DeviceError(
                f"the model does not fit: its weights take {weight_bytes / 1e9:.1f} GB in fp32, and "
                f"{room / 1e9:.1f} GB of host memory is available"
            )
        wanted = replace(wanted, mixed_share=wanted.mixed_share or MIXED_SHARE)
        limits = with_pages(wanted, (kv_memory or CPU_KV_BYTES) // per_page, bool(kv_memory))
        return with_host_pages(limits, per_page, host_kv_memory)

    def build_engine(
        self,
        config: Model,
        directory: Path,
        limits: Limits,
        random: bool,
        threads: int | None,
        processors: Processors = NO_PROCESSORS,
    ) -> CalledEngine:
        if random:
            raise DeviceError("random weights are made on the GPU: the CPU emulation needs a checkpoint")
        self._grid = GraphGrid(limits)
        sizes = limits, self._grid.shapes, config.vocab_size, config.eos_ids
        self.batch = allocate_batch(self.memory, *sizes, processors.only_recent)
        if limits.grammar_words:
            store_vocabulary(self.memory, self.batch, directory)
        if processors.names:
            store_processors(self.memory, self.batch, [code.address for code in processors.host_codes])
            self._processors = processors  # which owns the code
        try:
            self.engine: CalledEngine = ReferenceEngine(
                config,
                Checkpoint(directory),
                limits,
                self._grid.shapes,
                self.batch,
                threads or default_threads(),
            )
        except (CheckpointError, LibraryError, MemoryError) as error:
            raise EngineError(str(error)) from error
        return self.engine

    def make_ring(
        self, transport: str, path: Path, geometry: Geometry, facts: ModelFacts, owned: ExitStack
    ) -> tuple[Ring, int]:
        if transport != "shm":
            raise DeviceError(f"the transport {transport} needs a GPU: without one, --transport is shm")
        region = create(path, geometry, facts)
        owned.callback(region.close)
        return region, region.address

    def start_echo(self, ring_address: int, n_slots: int, step_ns: int) -> Scheduler:
        return HostEcho(ring_address, n_slots, step_ns)

    def export_ring(self, ring: Ring) -> ExportedMemory | None:
        return None

    def setup(
        self, geometry: Geometry, ring_address: int, limits: Limits, kind: SchedulerKind
    ) -> SchedulerSetup:
        restart(self.memory, self.batch)
        batch = mirror(self.memory, limits, self._grid, self.batch) if kind.host_driven else self.batch
        return SchedulerSetup(
            self.memory, geometry, ring_address, limits, self._grid, batch, None, CPU_PACE, kind.host_driven
        )

    def start(self, setup: SchedulerSetup, kind: SchedulerKind) -> Scheduler:
        if kind.host_driven:
            return HostDrivenScheduler.emulated(kind, setup, self.batch, self.engine)
        return EmulatedScheduler(setup, self.engine)

    def close(self) -> None:
        self.memory.close()
