"""The builder of the TensorRT engine: the native engine's, with steps that have plans in them.

The plans are made first, because the memory that they work in counts when the KV cache is sized.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpu_backend.cuda.driver import Device
from gpu_backend.engines.base import Batch, EngineError, GraphEngine, Limits, Shape
from gpu_backend.engines.graph_grid import GraphGrid
from gpu_backend.engines.native.builder import NativeEngineBuilder
from gpu_backend.engines.native.plan import Planning, described_plans
from gpu_backend.engines.native.sizing import with_mixed_share
from gpu_backend.engines.tensorrt.contexts import Contexts, Engines
from gpu_backend.engines.tensorrt.findings import to_install
from gpu_backend.engines.tensorrt.library import Library, NoLibrary, PlanError, load_library
from gpu_backend.engines.tensorrt.plans import Plans
from gpu_backend.engines.tensorrt.segments import Segment
from gpu_backend.engines.tensorrt.step import plan_step, refusal
from gpu_backend.models.description import Model
from gpu_backend.ops.launch import LibraryPlan
from gpu_backend.progress import ProgressLine


def serving_library(device: Device) -> Library:
    """The library, where it serves on this GPU. Raises EngineError in one line that says what to install."""
    try:
        library = load_library()
    except NoLibrary as error:
        missing = str(error).split(":")[0]
        raise EngineError(f"{missing}: {to_install(device.capability)}") from error
    if reason := library.refuses(device.capability):
        raise EngineError(reason)
    return library


class TensorRtEngineBuilder:
    """A gpu_backend.engines.builder.GpuEngineBuilder."""

    def limits(
        self,
        device: Device,
        config: Model,
        wanted: Limits,
        kv_memory: int | None,
        host_kv_memory: int | None = None,
    ) -> Limits:
        """Builds the plans first; raises EngineError where TensorRT does not serve."""
        if (reason := refusal(config)) is not None:
            raise EngineError(reason)
        library = serving_library(device)
        wanted = with_mixed_share(wanted, config)
        engines = self._engines(device, library, config, wanted)
        planning = Planning(
            plan_step, engines.scratch_bytes, lambda memory, stream: Contexts(engines, memory, stream)
        )
        self._native = NativeEngineBuilder(planning)
        return self._native.limits(device, config, wanted, kv_memory, host_kv_memory)

    def _engines(self, device: Device, library: Library, config: Model, limits: Limits) -> Engines:
        shapes = GraphGrid(limits).shapes
        steps = described_plans(config, limits, shapes, device.chip, plan_step)
        wanted: dict[object, tuple[Segment, LibraryPlan]] = {}
        for step in steps:
            for choice in step:
                for work in choice.launches:
                    if isinstance(work, LibraryPlan):
                        wanted.setdefault(work.key, (choice.op, work))
        plans, engines, progress = Plans(library, device.capability), Engines(library), ProgressLine()
        device.make_current()
        for done, (key, (segment, call)) in enumerate(wanted.items()):
            progress("TensorRT plans", done, len(wanted))
            try:
                engines.add(key, plans.plan(segment), call.name)
            except PlanError as error:
                raise EngineError(str(error)) from error
        progress("TensorRT plans", len(wanted), len(wanted))
        return engines

    def build(
        self,
        device: Device,
        config: Model,
        directory: Path,
        random: bool,
        limits: Limits,
        shapes: Sequence[Shape],
        batch: Batch,
    ) -> GraphEngine:
        return self._native.build(device, config, directory, random, limits, shapes, batch)
