"""Divides a step into segments, which plans of TensorRT compute, and our own operations.

The operations of a step are those of gpu_backend/engines/native/step.py, before fusion. A *segment* is a run
of consecutive operations that a plan can compute: norms, matmuls, sums. Our kernels compute what lies between
segments: gate, embedding, RoPE and attention over pages, gathering, experts, sampler. A dense decode step is

    gate, attention plan, embedding
    [norm, qkv]                                                    the first segment
    attention, [o, add, norm, gate_up, down, add, norm, qkv]       a segment between two layers' attention
    attention, [o, add, norm, gate_up, down, add, norm, head]      the last
    sampler

A plan reads its weights through inputs, as it reads activations. So one plan serves all layers that are
alike, the weights are in GPU memory once whatever number of sizes is captured, and our kernels share them
with the plans.

A plan must not write what it reads. Where a segment adds to the residual, its output is another buffer, and
the two take turns from segment to segment; the operations of ours between them are renamed accordingly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

from gpu_backend.element import HALF_TYPES
from gpu_backend.models.abi import Activation
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.operations import AddNorm, Embed, Epilogue, GatherLast, MatMul, Moe, Operation, RmsNorm

PlanOperation = RmsNorm | MatMul | AddNorm
Placed = TypeVar("Placed")


@dataclass(frozen=True)
class Tensor:
    """An input or output of a plan: [rows][columns] elements of `operand.element`, dense, at the buffer's or
    the weight's address, which is a multiple of 256. A vector is a Matrix of one row, and has one dimension
    in the plan."""

    name: str
    operand: Buffer | Matrix

    @property
    def shape(self) -> tuple[int, ...]:
        """In the plan."""
        rows, columns = self.operand.rows, self.operand.columns
        return (columns,) if isinstance(self.operand, Matrix) and rows == 1 else (rows, columns)


@dataclass(frozen=True)
class Segment:
    """A run of operations that one plan computes, of so many rows as its buffers have.

    `activations` and `weights` are the plan's inputs, `outputs` its outputs. Segments of layers that are
    alike have the same plan, whatever the addresses of their weights are (plans.py).
    """

    operations: tuple[PlanOperation, ...]
    activation: Activation
    activations: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def name(self) -> str:
        """The matmuls by their roles: "o, gate_up, down, qkv"."""
        return ", ".join(op.role.value for op in self.operations if isinstance(op, MatMul))

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (*self.activations, *self.weights)


def segmented(step: Sequence[Operation], activation: Activation) -> list[Operation | Segment]:
    """The step with its runs as segments; `activation` is that of the model's MLPs."""
    out: list[Operation | Segment] = []
    other: dict[str, str] = {}  # a buffer of the step -> where its contents are now, if not there
    for run, live in zip(runs := _runs(step), _live_after(runs), strict=True):
        placed = [_placed(op, other) for op in run]
        if not _planned(run):
            out += placed
            continue
        segment = _segment(run, activation, live)
        moved = {name: _turn(other.get(name, name), name) for name in _rewritten(segment)}
        out.append(_placed_segment(segment, other, {**other, **moved}))
        other |= moved
    return out


def reads(op: Operation) -> tuple[Buffer, ...]:
    """The buffers whose contents the operation depends on; of one that is not a plan's, perhaps more."""
    match op:
        case RmsNorm():
            return (op.x,)
        case MatMul():
            return (op.x, op.out) if op.epilogue is Epilogue.ADD else (op.x,)
        case AddNorm():
            return (op.x, op.residual)
        case Moe():
            return (op.residual,)
        case GatherLast():
            return (op.residual, op.attention)
        case Embed():
            return ()
    return tuple(_buffers(op))


def writes(op: PlanOperation) -> Buffer:
    return op.residual if isinstance(op, AddNorm) else op.out


def _plannable(op: Operation) -> bool:
    if isinstance(op, MatMul):
        return op.weight.element in HALF_TYPES
    return isinstance(op, RmsNorm | AddNorm)


def _planned(run: Sequence[Operation]) -> bool:
    """A norm alone is not worth a plan."""
    return all(map(_plannable, run)) and any(isinstance(op, MatMul) for op in run)


def _runs(step: Sequence[Operation]) -> list[list[Operation]]:
    runs: list[list[Operation]] = []
    for op in step:
        if runs and _plannable(op) and _plannable(runs[-1][-1]):
            runs[-1].append(op)
        else:
            runs.append([op])
    return runs


def _live_after(runs: Sequence[Sequence[Operation]]) -> list[set[str]]:
    """For each run the names of the buffers that are read behind it before they are written."""
    out: list[set[str]] = []
    live: set[str] = set()
    for run in reversed(runs):
        out.append(set(live))
        for op in reversed(run):
            if isinstance(op, RmsNorm | MatMul | AddNorm):
                live.discard(writes(op).name)
            live |= {buffer.name for buffer in reads(op)}
    return out[::-1]


def _segment(run: Sequence[Operation], activation: Activation, live: set[str]) -> Segment:
    """Of buffers that still have the step's names."""
    activations: dict[str, Buffer] = {}
    written: dict[str, Buffer] = {}
    weights: list[Tensor] = []
    operations = tuple(op for op in run if isinstance(op, RmsNorm | MatMul | AddNorm))
    for op in operations:
        activations |= {b.name: b for b in reads(op) if b.name not in written and b.name not in activations}
        written[writes(op).name] = writes(op)
        weights.append(_weight(op, len(weights)))
    return Segment(
        operations,
        activation,
        tuple(Tensor(name, buffer) for name, buffer in activations.items()),
        tuple(weights),
        tuple(Tensor(f"{name}_out", buffer) for name, buffer in written.items() if name in live),
    )


def _weight(op: PlanOperation, place: int) -> Tensor:
    """The operation's, named by what it is and, as there are several norms, by its place."""
    if isinstance(op, MatMul):
        return Tensor(op.role.value, op.weight)
    return Tensor(f"norm_{place}", op.norm.weight)


def _rewritten(segment: Segment) -> list[str]:
    """The buffers that the segment both reads and leaves."""
    read = {tensor.operand for tensor in segment.activations}
    return [t.operand.name for t in segment.outputs if t.operand in read and isinstance(t.operand, Buffer)]


def _turn(now: str, name: str) -> str:
    return f"{name}_turn" if now == name else name


def _placed_segment(segment: Segment, before: dict[str, str], behind: dict[str, str]) -> Segment:
    """The tensors at the buffers where they are; the operations keep the names that the plan knows."""
    activations = tuple(_placed(tensor, before) for tensor in segment.activations)
    return replace(
        segment,
        activations=activations,
        outputs=tuple(_placed(tensor, behind) for tensor in segment.outputs),
    )


def _placed(thing: Placed, names: dict[str, str]) -> Placed:
    """A copy in which every buffer that has moved has its present name."""
    if isinstance(thing, Buffer):
        return replace(thing, name=names.get(thing.name, thing.name))
    if not is_dataclass(thing) or isinstance(thing, type):
        return thing
    parts = {f.name: getattr(thing, f.name) for f in fields(thing)}
    changed = {name: new for name, part in parts.items() if (new := _placed(part, names)) != part}
    return replace(thing, **changed) if changed else thing


def _buffers(thing: Any) -> list[Buffer]:
    if isinstance(thing, Buffer):
        return [thing]
    if not is_dataclass(thing):
        return []
    return [buffer for f in fields(thing) for buffer in _buffers(getattr(thing, f.name))]
