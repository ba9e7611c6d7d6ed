"""Checks a request's JSON against a model of it, and says what was wrong as errors of the API."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from nic_frontend.api.fields import article
from nic_frontend.errors import ApiError, bad_request
from ringbuffer.model_file import shown

T = TypeVar("T")

MESSAGE = re.compile(r"(?P<what>.*?)(?: - at `(?:key in )?\$(?P<path>.*)`)?", re.DOTALL)
TYPE = re.compile(r"Expected `(?P<expected>[^`]*)`, got `(?P<found>[^`]*)`")
BOUND = re.compile(r"Expected `(?P<type>\w+)` (?P<of_length>of length )?(?P<operator>[<>=]+) (?P<bound>.*)")
PATTERN = re.compile(r"Expected `str` matching regex '(?P<pattern>.*)'")
MISSING = re.compile(r"Object missing required field `(?P<name>.*)`")
MOST_WHOLE = 1 << 18  # values of an array whose integers may be written with a fraction (F10)
ITEMS = "[]"  # all that an array has
ANY_KEY = "any key"  # of an object, where msgspec does not say which
NAMES = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "a boolean",
    "array": "an array",
    "object": "an object",
}
OPERATORS = {">=": "at least", "<=": "at most", ">": "above", "<": "below", "==": "exactly"}


def checked(body: Any, model: type[T], *where: str | int) -> T:
    """The request, or what stands at `where` in it, as `model`, a msgspec.Struct. A number such as 5.0 counts
    as an integer.

    Raises ApiError 400 that names the first field at fault.
    """
    try:
        return _converted(body, model)
    except msgspec.ValidationError as error:
        raise _explained(body, model, *_split(error), where) from error
    except RecursionError as error:
        raise bad_request("the body has too many levels") from error
    except UnicodeEncodeError as error:  # of a text where it compares texts
        raise bad_request("the body has a text with a lone surrogate, where none may be") from error


def _converted(body: Any, model: type[T]) -> T:
    """Two times at most, however many numbers were written with a fraction."""
    try:
        return msgspec.convert(body, model)
    except msgspec.ValidationError as error:
        found = TYPE.match(_split(error)[1])
        if found is None or found["found"] != "float" or "int" not in found["expected"].split(" | "):
            raise
    kind: type = model
    for path in integers(kind):
        _make_integers(body, path)
    return msgspec.convert(body, model)


def _split(error: msgspec.ValidationError) -> tuple[list[str | int], str]:
    """Where the error is, as keys and indices, and what it is."""
    found = MESSAGE.fullmatch(str(error))
    assert found is not None
    steps = re.findall(r"\.([^.\[]+)|\[(\d+)\]", (found["path"] or "").replace("[...]", f".{ANY_KEY}"))
    return [name or int(index) for name, index in steps], found["what"]


@functools.cache
def integers(model: type) -> tuple[tuple[str, ...], ...]:
    """Where a model has integers, and in arrays at ITEMS of them: paths without one behind ITEMS."""
    found: list[tuple[str, ...]] = []
    waiting: list[tuple[tuple[str, ...], inspect.Type]] = [((), inspect.type_info(model))]
    while waiting:
        path, kind = waiting.pop()
        if isinstance(kind, inspect.IntType):
            found.append(path)
        elif isinstance(kind, inspect.Metadata):
            waiting.append((path, kind.type))
        elif isinstance(kind, inspect.UnionType):
            waiting += [(path, alternative) for alternative in kind.types]
        elif isinstance(kind, inspect.ListType):
            waiting.append(((*path, ITEMS), kind.item_type))
        elif isinstance(kind, inspect.StructType):
            waiting += [((*path, field.encode_name), field.type) for field in kind.fields]
    assert not any(ITEMS in path[:-1] for path in found)
    return tuple(found)


def _make_integers(body: Any, path: tuple[str, ...]) -> None:
    """Replaces whole numbers that were written with a fraction at a path of `integers`."""
    *before, last = path
    holder = _at(body, before)
    if last == ITEMS and isinstance(holder, list) and len(holder) <= MOST_WHOLE:
        holder[:] = map(_integer, holder)
    elif isinstance(holder, dict) and last in holder:
        holder[last] = _integer(holder[last])


def _integer(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _at(body: Any, path: Sequence[str | int]) -> Any:
    """What stands at a path; None where nothing does."""
    for step in path:
        try:
            body = body[step]
        except (KeyError, IndexError, TypeError):
            return None
    return body


def written(path: list[str | int]) -> str:
    """messages[0].role"""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def _explained(
    body: Any, model: type, path: list[str | int], what: str, where: tuple[str | int, ...]
) -> ApiError:
    if path and path[-1] == ANY_KEY:
        name = written([*where, *path[:-1]])
        return bad_request(f"'{name}' has a value that it may not have: {what}", name, "invalid_value")
    value = _at(body, path)
    if found := MISSING.fullmatch(what):
        name = written([*where, *path, found["name"]])
        return bad_request(f"'{name}' is missing", name, "missing_required_parameter")
    name = written([*where, *path])
    if found := TYPE.match(what):
        kinds = [NAMES.get(kind, kind) for kind in found["expected"].split(" | ") if kind != "null"]
        return bad_request(
            f"'{name}' must be {' or '.join(kinds)}, it is {article(value)}", name, "invalid_type"
        )
    if found := BOUND.match(what):
        return bad_request(f"'{name}' must {_bound(found, value)}", name, "invalid_value")
    if (found := PATTERN.match(what)) and isinstance(value, str):
        return bad_request(
            f"'{name}' must match {found['pattern']}, it is {value[:100]!r}", name, "invalid_value"
        )
    if what.startswith("Invalid") and isinstance(value, str):
        known = ", ".join(map(repr, choices(model, path)))
        one = f"must be one of {known}, it is" if known else "has the invalid value"
        return bad_request(f"'{name}' {one} {value[:100]!r}", name, "invalid_value")
    return bad_request(f"'{name}': {what}", name, "invalid_value")


def _bound(found: re.Match[str], value: Any) -> str:
    limit = f"{OPERATORS[found['operator']]} {found['bound'].removesuffix('.0')}"
    if not found["of_length"]:
        return f"be {limit}, it is {shown(value)}"
    if limit == "at least 1":
        return "not be empty"
    unit = "characters" if found["type"] == "str" else "items"
    return f"have {limit} {unit}, it has {len(value)}"


@functools.cache
def components(*models: type) -> dict[str, Any]:
    """The JSON schemas of models and of what they consist of, by name."""
    return msgspec.json.schema_components(models, ref_template="#/components/schemas/{name}")[1]


def choices(model: type, path: list[str | int]) -> list[str]:
    """The strings that may stand at a path."""
    found = [{"$ref": f"/{model.__name__}"}]
    for step in path:
        found = [inner for schema in _alternatives(found, model) for inner in _inner(schema, step)]
    values = {value: None for schema in _alternatives(found, model) for value in schema.get("enum", ())}
    return [value for value in values if isinstance(value, str)]


def _alternatives(schemas: list[dict[str, Any]], model: type) -> list[dict[str, Any]]:
    """Schemas without references and alternatives."""
    found, waiting = [], list(schemas)
    while waiting:
        schema = waiting.pop(0)
        if "$ref" in schema:
            schema = components(model)[schema["$ref"].rpartition("/")[2]]
        waiting += schema.get("anyOf", [])
        found.append(schema)
    return found


def _inner(schema: dict[str, Any], step: str | int) -> list[dict[str, Any]]:
    inner = schema.get("items") if isinstance(step, int) else schema.get("properties", {}).get(step)
    return [inner] if isinstance(inner, dict) else []
