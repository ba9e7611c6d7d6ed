"""What serves each captured shape, and what follows from it: kernels to compile, buffers to allocate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from gpu_backend.abi import StepKind
from gpu_backend.cuda.chip import Chip
from gpu_backend.cuda.driver import Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.engines.base import Limits, Shape
from gpu_backend.engines.native.fusion import fused
from gpu_backend.engines.native.launcher import PlanRunner
from gpu_backend.engines.native.model import NativeModel
from gpu_backend.engines.native.step import StepBuilder
from gpu_backend.models.description import Model
from gpu_backend.ops.candidate import Choice, NoKernel
from gpu_backend.ops.choice import choose

Planner = Callable[[NativeModel, Shape], list[Choice]]


def plan_step(model: NativeModel, shape: Shape) -> list[Choice]:
    """The choices that make a step of `shape`, in order: the whole model as one kernel, or one by one.

    Raises NoKernel.
    """
    builder = StepBuilder(model, shape)
    if shape.kind == StepKind.COPY:
        return [choose(op, model.target) for op in builder.copies()]
    if shape.kind == StepKind.DECODE:
        with suppress(NoKernel):
            return [choose(op, model.target) for op in builder.whole()]
    return [choose(op, model.target) for op in fused(builder.build(), model.target)]


def kernel_names(plans: Iterable[Sequence[Choice]]) -> set[str]:
    """C++ names of the instances that the plans launch."""
    return {kernel for plan in plans for choice in plan for kernel in choice.kernels}


def buffer_bytes(plans: Iterable[Sequence[Choice]]) -> dict[str, int]:
    """Bytes of each buffer of activations, for the largest of the plans."""
    sizes: dict[str, int] = {}
    for plan in plans:
        for choice in plan:
            for buffer in choice.buffers:
                sizes[buffer.name] = max(sizes.get(buffer.name, 0), buffer.n_bytes)
    return sizes


@lru_cache(maxsize=4)
def described_plans(
    config: Model, limits: Limits, shapes: tuple[Shape, ...], chip: Chip, planner: Planner = plan_step
) -> tuple[list[Choice], ...]:
    """Of a model that is not loaded. Raises NoKernel."""
    model = NativeModel.described(config, limits, chip)
    return tuple(planner(model, shape) for shape in shapes)


@dataclass(frozen=True)
class Planning:
    """How an engine's steps are planned: all by kernels of ours, or with plans of a library in them.

    `runner` makes what runs such plans, over the engine's memory and on its stream; `scratch_bytes` of GPU
    memory are what they work in, None where that is not known because they have not been built.
    """

    planner: Planner = plan_step
    scratch_bytes: int | None = 0
    runner: Callable[[DeviceMemory, Stream], PlanRunner] | None = None


OWN_KERNELS = Planning()
