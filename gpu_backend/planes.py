"""Where a model runs: on a GPU, or emulated on the CPU. Each builds its memory, engine and scheduler."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from gpu_backend.batch import allocate_batch, mirror, restart
from gpu_backend.driven import DrivenScheduler
from gpu_backend.echo import HostEcho
from gpu_backend.emulated import EmulatedScheduler
from gpu_backend.engine.base import Limits
from gpu_backend.engine.graph_grid import GraphGrid
from gpu_backend.engine.host import HostEngine, HostMemory
from gpu_backend.host_library import LibraryError
from gpu_backend.model.checkpoint import Checkpoint, CheckpointError
from gpu_backend.model.config import ModelConfig
from gpu_backend.model.weights import model_weights
from gpu_backend.rdma.target import ExportedMemory
from gpu_backend.scheduler import CPU_PACE, Scheduler, SchedulerKind, SchedulerSetup
from ringbuffer.abi import Control, Phase
from ringbuffer.region import Geometry, ModelFacts, create

CPU_KV_BYTES = 1 << 30
HOST_ELEMENT = 4  # the host engine computes in fp32


class PlaneError(RuntimeError):
    """The device cannot be used, or the model does not fit on it; says why and what to do."""


@dataclass(frozen=True)
class Defaults:
    max_batch: int
    max_prefill_tokens: int
    max_prefill_lanes: int


class EngineHandle(Protocol):
    def close(self) -> None: ...


class Ring(Protocol):
    """What the backend's host process does with the ring: it looks, and sets the control word."""

    geometry: Geometry
    address: int  # in this process, or in GPU memory

    def set_control(self, control: Control) -> None: ...

    def phase(self) -> Phase | int: ...

    def heartbeat(self) -> int: ...

    def fault(self) -> tuple[int, int]: ...

    def stats(self) -> dict[str, int]: ...


class Plane(Protocol):
    """Call in order: limits, build_engine, make_ring, setup, start; `close` last.

    A host-driven scheduler sees the ring where this process does. After a scheduler has ended,
    another may be set up and started over the same engine.
    """

    name: str
    defaults: Defaults

    def limits(self, config: ModelConfig, wanted: Limits, kv_memory: int | None) -> Limits: ...

    def build_engine(
        self, config: ModelConfig, directory: Path, limits: Limits, random: bool, threads: int | None
    ) -> EngineHandle: ...

    def make_ring(
        self, transport: str, path: Path, geometry: Geometry, facts: ModelFacts, owned: ExitStack
    ) -> tuple[Ring, int]:
        """The ring, and where the scheduler sees it. `owned` releases it."""
        ...

    def export_ring(self, ring: Ring) -> ExportedMemory | None:
        """The ring for an RDMA device, if it is in GPU memory; None for one in host memory."""
        ...

    def start_echo(self, ring_address: int, n_slots: int, step_ns: int) -> Scheduler:
        """An echo in the scheduler's place (gpu_backend/echo.py); needs a ring and nothing else."""
        ...

    def setup(
        self, geometry: Geometry, ring_address: int, limits: Limits, kind: SchedulerKind
    ) -> SchedulerSetup: ...

    def start(self, setup: SchedulerSetup, kind: SchedulerKind) -> Scheduler: ...

    def close(self) -> None: ...


def choose(device: str, ordinal: int | None = None) -> Plane:
    """`auto` takes the GPU if there is one, else the CPU; `ordinal` asks for a GPU. Raises PlaneError."""
    if device not in ("auto", "gpu", "cpu"):
        raise PlaneError(f"device is '{device}', it must be auto, gpu or cpu")
    if device == "cpu":
        if ordinal is not None:
            raise PlaneError(f"--gpu {ordinal} is a GPU, and --device is cpu: leave one of them out")
        return CpuPlane()
    from gpu_backend.cuda.driver import CudaUnavailable, NoGpu
    from gpu_backend.gpu_plane import GpuPlane

    asked = device == "gpu" or ordinal is not None
    try:
        return GpuPlane(ordinal or 0)
    except CudaUnavailable as error:
        if asked:
            raise PlaneError(f"no GPU to serve from: {error}") from error
        if not isinstance(error, NoGpu):
            raise PlaneError(
                f"cannot serve from the GPU: {error}; --device cpu to run the emulation anyway"
            ) from error
        say(f"serving from the CPU emulation: {error}")
        return CpuPlane()


def with_pages(wanted: Limits, pages: int) -> Limits:
    """`wanted` with a KV cache of at most `pages`: what the batch can use, and a context that fits."""
    pages = min(pages, wanted.max_batch * wanted.pages_per_row)
    if pages < 2:
        raise PlaneError("the KV cache has no room for two pages: raise --kv-memory")
    context = min(wanted.max_context, pages * wanted.page_size)
    if context < wanted.max_context:
        say(f"the KV cache holds {context} tokens: the context is cut from {wanted.max_context} to that")
    return replace(wanted, total_pages=pages, max_context=context)


def say(text: str) -> None:
    print(f"blink backend: {text}", file=sys.stderr, flush=True)


def available_bytes() -> int:
    """Host memory that can be had without swapping."""
    fields = Path("/proc/meminfo").read_text(encoding="ascii").split()
    return int(fields[fields.index("MemAvailable:") + 1]) << 10


def default_threads() -> int:
    """All processors but one, which the frontend and the policy share."""
    return max(1, (os.cpu_count() or 1) - 1)


class CpuPlane:
    """The emulation: the scheduler's source and the host engine, in this process's memory."""

    defaults = Defaults(max_batch=32, max_prefill_tokens=512, max_prefill_lanes=8)

    def __init__(self) -> None:
        self.name = "cpu"
        self.memory = HostMemory()

    def limits(self, config: ModelConfig, wanted: Limits, kv_memory: int | None) -> Limits:
        per_page = 2 * HOST_ELEMENT * config.n_layers * config.n_kv_heads * config.head_dim * wanted.page_size
        weight_bytes, room = HOST_ELEMENT * model_weights(config).n_elements, available_bytes()
        if weight_bytes > room:
            raise PlaneError(
                f"the model does not fit: its weights take {weight_bytes / 1e9:.1f} GB in fp32, and "
                f"{room / 1e9:.1f} GB of host memory is available"
            )
        return with_pages(wanted, (kv_memory or CPU_KV_BYTES) // per_page)

    def build_engine(
        self, config: ModelConfig, directory: Path, limits: Limits, random: bool, threads: int | None
    ) -> EngineHandle:
        if random:
            raise PlaneError("random weights are made on the GPU: the CPU emulation needs a checkpoint")
        self._grid = GraphGrid(limits)
        self.batch = allocate_batch(self.memory, limits, self._grid.shapes, config.vocab_size, config.eos_ids)
        try:
            self.engine = HostEngine(
                config,
                Checkpoint(directory),
                limits,
                self._grid.shapes,
                self.batch,
                threads or default_threads(),
            )
        except (CheckpointError, LibraryError, MemoryError) as error:
            raise PlaneError(str(error)) from error
        return self.engine

    def make_ring(
        self, transport: str, path: Path, geometry: Geometry, facts: ModelFacts, owned: ExitStack
    ) -> tuple[Ring, int]:
        if transport != "shm":
            raise PlaneError(f"the transport {transport} needs a GPU: without one, --transport is shm")
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
        return SchedulerSetup(self.memory, geometry, ring_address, limits, self._grid, batch, None, CPU_PACE)

    def start(self, setup: SchedulerSetup, kind: SchedulerKind) -> Scheduler:
        engine = self.engine.run_address, self.engine.context_address
        if kind.host_driven:
            return DrivenScheduler.emulated(kind, setup, self.batch, *engine)
        return EmulatedScheduler(setup, *engine)

    def close(self) -> None:
        self.memory.close()
