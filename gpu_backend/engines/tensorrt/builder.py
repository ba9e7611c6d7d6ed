"""The builder of the TensorRT engine: the native engine's, with steps that have plans in them.

The plans and their contexts are made first, because the memory that they hold and work in counts when the KV
cache is sized.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import chain
from pathlib import Path
from traceback import clear_frames

from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.engines.base import Batch, EngineError, GraphEngine, Limits, Shape
from gpu_backend.engines.graph_grid import GraphGrid
from gpu_backend.engines.native.builder import NativeEngineBuilder
from gpu_backend.engines.native.lowering import Lowering, lowered_steps
from gpu_backend.engines.native.sizing import with_mixed_share
from gpu_backend.engines.tensorrt.compiled import CompiledKernels
from gpu_backend.engines.tensorrt.contexts import Contexts, Engines
from gpu_backend.engines.tensorrt.findings import to_install
from gpu_backend.engines.tensorrt.library import Library, NoLibrary, PlanError, load_library
from gpu_backend.engines.tensorrt.plans import Board, Plans
from gpu_backend.engines.tensorrt.segments import Segment
from gpu_backend.engines.tensorrt.step import lower_step, refusal
from gpu_backend.models.description import Model
from gpu_backend.ops.launch import PlanCall
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


def loaded_plans(device: Device, config: Model, limits: Limits) -> Engines:
    """The plans of all steps, built or from the cache. `device` closes them before it ends.

    Raises EngineError where TensorRT does not serve.
    """
    if (reason := refusal(config)) is not None:
        raise EngineError(reason)
    library = serving_library(device)
    steps = lowered_steps(config, limits, GraphGrid(limits).shapes, device.chip, lower_step)
    calls: defaultdict[Hashable, dict[PlanCall, Segment]] = defaultdict(dict)
    for choice in chain.from_iterable(steps):
        for work in choice.launches:
            if isinstance(work, PlanCall):
                calls[work.key][work] = choice.op
    device.make_current()
    plans, progress = Plans(library, Board(device.name, device.chip)), ProgressLine()
    try:
        compiled = CompiledKernels((library.title, library.packages, device.name, config, limits))
        engines = Engines(library, compiled)
        device.before_close(engines.close)
        for done, (key, alike) in enumerate(calls.items()):
            progress("TensorRT plans", done, len(calls))
            plan = plans.plan(next(iter(alike.values())))
            engines.add(key, plan, [call.name for call in alike])
    except PlanError as error:
        clear_frames(error.__traceback__)  # a builder in them would end after the GPU's context
        raise EngineError(str(error)) from error
    progress("TensorRT plans", len(calls), len(calls))
    return engines


def lowering_with(engines: Engines) -> Lowering:
    """Steps with plans in them."""

    def runner(memory: DeviceMemory, stream: Stream) -> Contexts:
        return Contexts(engines, memory, stream)

    return Lowering(lower_step, engines.scratch_bytes, runner)


class TensorRtEngineBuilder:
    """A gpu_backend.engines.builder.GpuEngineBuilder: the native engine's, with plans in the steps."""

    def limits(
        self,
        device: Device,
        config: Model,
        wanted: Limits,
        kv_memory: int | None,
        host_kv_memory: int | None = None,
    ) -> Limits:
        """Makes the plans first. Raises EngineError where TensorRT does not serve."""
        wanted = with_mixed_share(wanted, config)
        self._native = NativeEngineBuilder(lowering_with(loaded_plans(device, config, wanted)))
        return self._native.limits(device, config, wanted, kv_memory, host_kv_memory)

    def build(
        self,
        device: Device,
        config: Model,
        directory: Path,
        random: bool,
        limits: Limits,
        shapes: Sequence[Shape],
        batch: Batch,
        processors: Sequence[bytes] = (),
    ) -> GraphEngine:
        return self._native.build(device, config, directory, random, limits, shapes, batch, processors)
