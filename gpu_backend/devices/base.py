"""What a model is served from: a GPU, or its emulation on the CPU.

A serving device builds its memory, its engine and its scheduler. A CUDA device is something else
(cuda/driver.py): the driver's view of a GPU, which the serving device of a GPU holds.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gpu_backend.cuda.chip import Capability
from gpu_backend.engines.base import Engine, Limits
from gpu_backend.models.description import Model
from gpu_backend.processors.loaded import NO_PROCESSORS, Processors
from gpu_backend.rdma.target import ExportedMemory
from gpu_backend.schedulers.base import Scheduler, SchedulerKind
from gpu_backend.schedulers.setup import SchedulerSetup
from ringbuffer.abi import Control, Fault, Phase
from ringbuffer.region import Geometry, ModelFacts


class DeviceError(RuntimeError):
    """The device cannot be used, or the model does not fit on it; says why and what to do."""


@dataclass(frozen=True)
class Defaults:
    """Limits where the user gives none: sequences that decode, prompt tokens a step, prompts a step."""

    max_batch: int
    max_prefill_tokens: int
    max_prefill_slots: int


class Ring(Protocol):
    """What the backend's host process does with the ring: it looks, and sets the control word."""

    geometry: Geometry
    address: int  # in this process, or in GPU memory

    def set_control(self, control: Control) -> None: ...

    def phase(self) -> Phase | int: ...

    def heartbeat(self) -> int: ...

    def fault(self) -> tuple[int, int]: ...

    def fail(self, fault: Fault, detail: int) -> None:
        """Says in the place of a scheduler that has died that it failed, and why, where that can be said."""
        ...

    def stats(self) -> dict[str, int]: ...


class ServingDevice(Protocol):
    """Call in order: limits, build_engine, make_ring, setup, start; `close` last.

    A host-driven scheduler sees the ring where this process does. After a scheduler has ended,
    another may be set up and started over the same engine.
    """

    name: str
    defaults: Defaults
    capability: Capability  # that logits processors are compiled for

    def limits(
        self, config: Model, wanted: Limits, kv_memory: int | None, host_kv_memory: int | None = None
    ) -> Limits:
        """`wanted` with as many KV pages as fit, or those of `kv_memory` bytes, and those of `host_kv_memory`
        bytes of host memory.

        Raises DeviceError or ValueError where the model does not fit, or no page does.
        """
        ...

    def build_engine(
        self,
        config: Model,
        directory: Path,
        limits: Limits,
        random: bool,
        threads: int | None,
        processors: Processors = NO_PROCESSORS,
    ) -> Engine:
        """The engine, which the caller closes. Raises DeviceError, EngineError."""
        ...

    def make_ring(
        self, transport: str, path: Path, geometry: Geometry, facts: ModelFacts, owned: ExitStack
    ) -> tuple[Ring, int]:
        """The ring, and where the scheduler sees it. `owned` releases it. Raises DeviceError, RingError."""
        ...

    def export_ring(self, ring: Ring) -> ExportedMemory | None:
        """The ring for an RDMA device, if it is in GPU memory; None for one in host memory."""
        ...

    def start_echo(self, ring_address: int, n_slots: int, step_ns: int) -> Scheduler:
        """An echo in the scheduler's place (schedulers/echo.py); needs a ring and nothing else."""
        ...

    def setup(
        self, geometry: Geometry, ring_address: int, limits: Limits, kind: SchedulerKind
    ) -> SchedulerSetup:
        """The scheduler's arrays and configuration, between the ring and the engine that was built."""
        ...

    def start(self, setup: SchedulerSetup, kind: SchedulerKind) -> Scheduler:
        """Starts a scheduler of that kind. Raises DeviceError."""
        ...

    def close(self) -> None:
        """Releases the device's memory. The engine must be closed."""
        ...
