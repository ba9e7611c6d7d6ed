"""Where a source has a number that is infinite or none at all: Python reads such, and JSON has none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from nic_frontend.grammar.place import escaped

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
    waiting: list[tuple[Any, Steps]] = [(document, None)]
    while waiting:
        value, steps = waiting.pop()
        if isinstance(value, float) and not math.isfinite(value):
            pointer = "/".join(["#", *reversed([escaped(str(step)) for step in _backwards(steps)])])
            return pointer if len(pointer) <= MOST_PLACE else f"{pointer[: MOST_PLACE - 3]}..."
        if isinstance(value, dict):
            waiting += [(inner, (steps, key)) for key, inner in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [(inner, (steps, i)) for i, inner in enumerate(value)]
    return None


def _backwards(steps: Steps) -> Iterator[object]:
    while steps is not None:
        steps, step = steps
        yield step
