"""A request's field is told once: by the line of its model that has its name, type, range and description,
and by the Row in its annotation. From these follows how it is checked, what is meant where it is left out,
which field of the ring's descriptor it becomes, where it is refused, /openapi.json, and
docs/request-fields.md.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Neutral = dict[str, tuple[Any, ...]]  # for each field, the values of it that ask for nothing


def _itself(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Row:
    """`neutral` are the values that ask for nothing, the first of which is meant where the field is left out.
    Endpoints without the field take null and these, and refuse everything else. `in_descriptor`: `written` of
    the value is the descriptor's field of the same name (ringbuffer/ring.h). `of_model`: a model may have a
    default of its own for the field (api/sampling_defaults.py).
    """

    neutral: tuple[Any, ...] = ()
    in_descriptor: bool = False
    of_model: bool = False
    written: Callable[[Any], Any] = _itself


@functools.cache
def rows(model: type) -> dict[str, Row]:
    """The rows of a msgspec.Struct by the names of its fields; some fields have none."""
    hints = typing.get_type_hints(model, include_extras=True)
    found = {name: _row(hint) for name, hint in hints.items()}
    return {name: row for name, row in found.items() if row is not None}


def _row(hint: Any) -> Row | None:
    """Annotations may stand within a union."""
    for annotation in getattr(hint, "__metadata__", ()):
        if isinstance(annotation, Row):
            return annotation
    inner = (_row(argument) for argument in typing.get_args(hint) if not isinstance(argument, str))
    return next((row for row in inner if row is not None), None)


def descriptor_values(request: Any) -> dict[str, Any]:
    """What a request wants of the descriptor's fields that have a row."""
    model: type = type(request)
    values = {}
    for name, row in rows(model).items():
        if row.in_descriptor:
            value = getattr(request, name)
            values[name] = row.written(row.neutral[0] if value is None else value)
    return values


def names_of_model(model: type) -> list[str]:
    """The fields for which a model may have defaults of its own."""
    return [name for name, row in rows(model).items() if row.of_model]


def refused(model: type, others: Sequence[type]) -> Neutral:
    """Fields of `others` that `model` does not have, with the values of them that it takes nevertheless."""
    known = typing.get_type_hints(model)
    return {
        name: (None, *row.neutral)
        for other in others
        for name, row in rows(other).items()
        if name not in known
    }
