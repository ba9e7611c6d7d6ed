"""Lowers a step to plans of TensorRT: the operations of the native engine, before fusion, divided into
segments.

Gate, embedding, RoPE, attention, gathering and sampler are the kernels that the native engine would take.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from gpu_backend.abi import StepKind
from gpu_backend.engines.base import Shape
from gpu_backend.engines.native import lowering
from gpu_backend.engines.native.model import NativeModel
from gpu_backend.engines.native.step import StepBuilder
from gpu_backend.engines.tensorrt.segments import Segment, segmented
from gpu_backend.models.description import Model
from gpu_backend.ops.candidate import Choice, NoKernel
from gpu_backend.ops.choice import choose
from gpu_backend.ops.launch import Launch, PlanCall
from gpu_backend.ops.matrix import Buffer, Matrix

FAMILY = "tensorrt"


def lower_step(model: NativeModel, shape: Shape) -> list[Choice]:
    """The choices that make a step of `shape`, in order. Without experts, no kernel needs L1, so all launches
    divide memory alike (E23). Raises NoKernel.
    """
    if (reason := refusal(model.config)) is not None:
        raise NoKernel(reason)
    if shape.kind == StepKind.COPY:
        return lowering.lower_step(model, shape)
    choices: list[Choice] = []
    segments = 0
    for op in segmented(StepBuilder(model, shape).build(), model.config.activation):
        if isinstance(op, Segment):
            choices.append(Choice(op, FAMILY, (library_plan(op, segments, shape),)))
            segments += 1
        elif choices and choices[-1].name == FAMILY:
            choices.append(_behind_plan(choose(op, model.target)))
        else:
            choices.append(choose(op, model.target))
    return choices


def refusal(config: Model) -> str | None:
    """Why no plans serve the model; None where they do."""
    narrow = " and ".join(form.words for form in config.scale_forms)
    has = {"mixtures of experts": config.experts is not None, f"weights in {narrow}": bool(narrow)}
    what = next((name for name, there in has.items() if there), None)
    return f"--engine tensorrt does not serve {what}: --engine native does" if what else None


def library_plan(segment: Segment, index: int, shape: Shape) -> PlanCall:
    """The call of the segment's plan; it is the step's plan `index`."""
    writes = []
    for tensor in segment.outputs:
        assert isinstance(tensor.operand, Buffer)
        writes.append((tensor.name, tensor.operand))
    size = f"{shape.tokens} {'token' if shape.tokens == 1 else 'tokens'}"
    return PlanCall(
        f"plan {index} ({segment.name}) of the {shape.kind.name.lower()} step of {size}",
        plan_key(segment),
        segment.operations,
        tuple((tensor.name, tensor.operand) for tensor in segment.inputs),
        tuple(writes),
    )


def plan_key(segment: Segment) -> Hashable:
    """The same for segments whose plan is the same: wherever their weights and buffers are."""
    names = tuple(tensor.name for tensor in segment.outputs)
    return _anywhere(segment.operations), segment.activation, names


def _anywhere(thing: Any) -> Any:
    """A copy with no addresses in it."""
    if isinstance(thing, tuple):
        return tuple(_anywhere(part) for part in thing)
    if isinstance(thing, Matrix):
        return replace(thing, address=0)
    if not is_dataclass(thing) or isinstance(thing, type | Buffer):
        return thing
    return replace(thing, **{field.name: _anywhere(getattr(thing, field.name)) for field in fields(thing)})


def _behind_plan(choice: Choice) -> Choice:
    """A kernel behind a plan starts when that has ended: what it overlaps must be a kernel, and a plan may
    end with a copy."""
    first, *others = choice.launches
    assert isinstance(first, Launch)
    return replace(choice, launches=(replace(first, overlap=False), *others))
