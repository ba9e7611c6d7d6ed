"""What a library's plan makes of rows of expressions: its operations in order, on what is bound to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu_backend.engines.tensorrt.segments import PlanOperation
from gpu_backend.ops.launch import PlanCall
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.operations import AddNorm, Epilogue, MatMul, RmsNorm

Expression = Any
Rows = list[Expression]


def computed(
    call: PlanCall, rows_of: Callable[[Buffer], Rows], named: Callable[[Matrix], str]
) -> dict[str, Rows]:
    """The rows of each output, by its tensor's name, of `rows_of` buffers and weights that `named` names.

    A plan knows its tensors by their names: an activation's is that of the buffer in its operations, and
    weights come in the order of the operations.
    """
    read = {place.name for _, place in call.reads if isinstance(place, Buffer)}
    assert not read & {place.name for _, place in call.writes}, "an output over an input"
    values = {name: rows_of(place) for name, place in call.reads if isinstance(place, Buffer)}
    weights = [place for _, place in call.reads if isinstance(place, Matrix)]
    assert len(weights) == len(call.operations)
    written: dict[str, Rows] = {}
    for operation, weight in zip(call.operations, weights, strict=True):
        name, rows = _result(operation, named(weight), values)
        values[name] = written[f"{name}_out"] = rows
    return written


def _result(operation: PlanOperation, weight: str, values: dict[str, Rows]) -> tuple[str, Rows]:
    match operation:
        case MatMul():
            made = [("times", weight, x) for x in values[operation.x.name]]
            assert len(made) == operation.m
            if operation.epilogue is Epilogue.ADD:
                made = _sums(values[operation.out.name], made)
            if operation.epilogue is Epilogue.GATED:
                made = [("silu", row) for row in made]
            return operation.out.name, made
        case RmsNorm():
            return operation.out.name, [("norm", weight, x) for x in values[operation.x.name]]
        case AddNorm():
            normed = [("norm", weight, x) for x in values[operation.x.name]]
            return operation.residual.name, _sums(values[operation.residual.name], normed)


def _sums(residual: Rows, added: Rows) -> Rows:
    return [("add", x, y) for x, y in zip(residual, added, strict=True)]
