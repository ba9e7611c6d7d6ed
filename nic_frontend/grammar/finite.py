"""Where a source has a number that is infinite or none at all: Python reads such, and JSON has none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from nic_frontend.grammar.place import escaped

CONTAINERS = dict, list, tuple
MOST_PLACE = 200  # characters of a place that is named
Steps = tuple[Any, object] | None  # the steps before, and the last one


def infinite_number(source: dict[str, Any]) -> str | None:
    """Its place in what a client has sent; `source` is as answer.py reads it, however deep it is."""
    if source["content"] is not None:
        _, content = source["content"]
        if (pointer := _pointer(content)) is not None:
            return pointer
    for name, parameters, _ in source["tools"]:
        if (pointer := _pointer(parameters)) is not None:
            return f"{pointer} of the tool {name[:MOST_PLACE]!r}"
    return None


def _pointer(document: Any) -> str | None:
    if _is_infinite(document):
        return "#"
    waiting: list[tuple[Any, Steps]] = [(document, None)]
    while waiting:
        value, steps = waiting.pop()
        members = value.items() if isinstance(value, dict) else enumerate(value) if _is_list(value) else ()
        # Of long arrays of numbers nothing is kept: this runs on the event loop.
        for step, inner in members:
            if isinstance(inner, float):
                if _is_infinite(inner):
                    return _written((steps, step))
            elif isinstance(inner, CONTAINERS):
                waiting.append((inner, (steps, step)))
    return None


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _written(steps: Steps) -> str:
    pointer = "/".join(["#", *reversed([escaped(str(step)) for step in _backwards(steps)])])
    return pointer if len(pointer) <= MOST_PLACE else f"{pointer[: MOST_PLACE - 3]}..."


def _backwards(steps: Steps) -> Iterator[object]:
    while steps is not None:
        steps, step = steps
        yield step
