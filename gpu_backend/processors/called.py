"""What a logits processor calls: functions of its module and of others, which Numba compiles with it."""

from __future__ import annotations

import contextlib
import dis
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

MOST_FUNCTIONS = 100  # of the user's, that one calls in all

# Numba has code of its own for what it can compile of these: what their Python source does is of no matter.
LIBRARIES = sys.stdlib_module_names | {"numpy", "numba", "numba_cuda"}
ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")


class TooMany(ValueError):
    """A function calls more than MOST_FUNCTIONS."""


def called_by(function: FunctionType) -> Iterator[CodeType]:
    """The code of the function itself, of what it calls, and of what that calls, with the functions that are
    defined in them.

    Raises TooMany.
    """
    waiting, seen = [function], {function}
    while waiting:
        one = waiting.pop()
        for code in _nested(one.__code__):
            yield code
            for used in _used(code, _nonlocals(one), one.__globals__):
                found = python_function(used)
                if isinstance(found, FunctionType) and found not in seen and not _is_library(found):
                    if len(seen) > MOST_FUNCTIONS:
                        raise TooMany(f"it calls more than {MOST_FUNCTIONS} functions")
                    seen.add(found)
                    waiting.append(found)


def python_function(found: Any) -> Any:
    """What numba.njit was given, where `found` is decorated with it."""
    return getattr(found, "py_func", found)


def prints(code: CodeType) -> bool:
    return "print" in code.co_names


def raises(code: CodeType) -> bool:
    """An assertion does, too."""
    return any(instruction.opname == "RAISE_VARARGS" for instruction in dis.get_instructions(code))


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _used(code: CodeType, nonlocals: dict[str, Any], globals_: dict[str, Any]) -> Iterator[Any]:
    """What its names of other scopes stand for, and their attributes where those are modules."""
    value: Any = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            value = globals_.get(instruction.argval)
        elif instruction.opname == "LOAD_DEREF":
            value = nonlocals.get(instruction.argval)
        elif instruction.opname in ATTRIBUTES and isinstance(value, ModuleType):
            value = getattr(value, instruction.argval, None)
        else:
            value = None
        if value is not None:
            yield value


def _nonlocals(function: FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    found = {}
    for name, cell in cells:
        with contextlib.suppress(ValueError):  # it has no value yet
            found[name] = cell.cell_contents
    return found


def _is_library(function: FunctionType) -> bool:
    return (function.__module__ or "").partition(".")[0] in LIBRARIES
