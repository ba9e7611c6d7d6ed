"""What a request wants its answers to be: `response_format`, `structured_outputs` and their older names."""

from __future__ import annotations

from typing import Any

from nic_frontend.api.schema.generation import Structured
from nic_frontend.api.schema.rows import Neutral
from nic_frontend.api.schema.structure import ResponseFormat, StructuredOutputs
from nic_frontend.compiling.store import check_length
from nic_frontend.errors import bad_request
from nic_frontend.grammar.content import Content
from nic_frontend.grammar.refusal import LONE_SURROGATE
from nic_frontend.http.json_text import TooMuch, read_json

GUIDED = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
}
# What may be given as a text of JSON, and what that has to be.
IN_JSON = {"json": dict | bool, "structural_tag": dict}
NAMES = {"json": "a schema", "structural_tag": "an object"}
UNSUPPORTED: Neutral = {
    "disable_additional_properties": (None, False),
    "disable_any_whitespace": (None, False),
    "whitespace_pattern": (None,),
}


def content_of(request: Structured) -> Content | None:
    """None: any text.

    Raises ApiError 400 where more than one thing is wanted, or a part of it is missing.
    """
    wanted: list[Content | None] = [_formatted(request.response_format)]
    if request.structured_outputs is not None:
        wanted += _structured(request.structured_outputs)
    for name, kind in GUIDED.items():
        if (source := getattr(request, name)) is not None:
            wanted.append(_content(kind, source, name))
    found = [content for content in wanted if content is not None]
    if len(found) > 1:
        names = " and ".join(f"'{content.param}'" for content in found)
        raise bad_request(f"{names} exclude each other", found[1].param, "invalid_value")
    return found[0] if found else None


def _formatted(wanted: ResponseFormat | None) -> Content | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return Content("json_object", None, "response_format")
    if wanted.type == "structural_tag":
        parts = {"structures": wanted.structures, "triggers": wanted.triggers, "format": wanted.format}
        given = {name: part for name, part in parts.items() if part is not None}
        return Content("structural_tag", given, "response_format")
    if wanted.json_schema is None:
        name = "response_format.json_schema"
        raise bad_request(f"'{name}' is missing", name, "missing_required_parameter")
    return Content("json", wanted.json_schema.schema, "response_format")


def _structured(wanted: StructuredOutputs) -> list[Content]:
    for name, neutral in UNSUPPORTED.items():
        if getattr(wanted, name) not in neutral:
            raise bad_request(
                f"'structured_outputs.{name}' is not supported by this server; leave it out",
                f"structured_outputs.{name}",
                "unsupported_parameter",
            )
    found = [
        _content(kind, source, f"structured_outputs.{kind}")
        for kind in (*GUIDED.values(), "structural_tag")
        if (source := getattr(wanted, kind)) is not None
    ]
    if wanted.json_object:
        found.append(Content("json_object", None, "structured_outputs.json_object"))
    return found


def _content(kind: str, source: Any, param: str) -> Content:
    if kind in IN_JSON and isinstance(source, str):
        check_length(len(source), param)  # before it is read, on the event loop
        try:
            source = read_json(source.encode())
        except TooMuch as error:
            raise bad_request(f"'{param}' {error}", param, "invalid_value") from error
        except UnicodeEncodeError as error:
            raise bad_request(
                f"'{param}' cannot be enforced: {LONE_SURROGATE}", param, "invalid_value"
            ) from error
        except ValueError as error:
            raise bad_request(f"'{param}' is not valid JSON: {error}", param, "invalid_value") from error
        if not isinstance(source, IN_JSON[kind]):
            raise bad_request(f"'{param}' must be {NAMES[kind]}", param, "invalid_value")
    return Content(kind, source, param)
