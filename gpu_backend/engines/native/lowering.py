"""Lowers the operations of each captured shape to kernels, from which follow the kernels to compile and the
buffers to allocate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial

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
from gpu_backend.ops.choice import choose, dividing_alike
from gpu_backend.ops.gpu import Target

LowerStep = Callable[[NativeModel, Shape], list[Choice]]


def lower_step(model: NativeModel, shape: Shape) -> list[Choice]:
    """The kernels of a step of `shape`, in order: one for the whole model, or one choice per operation.

    Raises NoKernel.
    """
    return dividing_alike(partial(_lower_on, model, shape), model.target)


def _lower_on(model: NativeModel, shape: Shape, target: Target) -> list[Choice]:
    builder = StepBuilder(model, shape)
    if shape.kind == StepKind.COPY:
        return [choose(op, target) for op in builder.copies()]
    if shape.kind == StepKind.DECODE and not shape.verifies:  # the megakernel has one row a sequence
        with suppress(NoKernel):
            return [choose(op, target) for op in builder.whole()]
    return [choose(op, target) for op in fused(builder.build(), target)]


def kernel_names(steps: Iterable[Sequence[Choice]]) -> set[str]:
    """C++ names of the instances that the steps launch."""
    return {kernel for step in steps for choice in step for kernel in choice.kernels}


def buffer_bytes(steps: Iterable[Sequence[Choice]]) -> dict[str, int]:
    """Bytes of each buffer of activations, for the largest of the steps."""
    sizes: dict[str, int] = {}
    for step in steps:
        for choice in step:
            for buffer in choice.buffers:
                sizes[buffer.name] = max(sizes.get(buffer.name, 0), buffer.n_bytes)
    return sizes


@lru_cache(maxsize=4)
def lowered_steps(
    config: Model, limits: Limits, shapes: tuple[Shape, ...], chip: Chip, lower: LowerStep = lower_step
) -> tuple[list[Choice], ...]:
    """The lowered step of each shape, for a model that is described but not loaded. Raises NoKernel."""
    model = NativeModel.described(config, limits, chip)
    return tuple(lower(model, shape) for shape in shapes)


@dataclass(frozen=True)
class Lowering:
    """How the steps of an engine are lowered: to our own kernels only, or also to plans of TensorRT.

    `runner` makes the object that runs such plans, over the engine's memory and on its stream. The plans need
    `scratch_bytes` of GPU memory, which is None if that is not known because they have not been built.
    """

    lower: LowerStep = lower_step
    scratch_bytes: int | None = 0
    runner: Callable[[DeviceMemory, Stream], PlanRunner] | None = None


OWN_KERNELS = Lowering()
