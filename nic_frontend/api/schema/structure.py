"""What answers are to be: OpenAI's `response_format`, and what vLLM has beside it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Schema = dict[str, Any] | bool
Choices = Annotated[list[str], Meta(min_length=1, max_length=10_000)]


class JsonSchema(Struct):
    schema: Schema
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


StructuralTag = Annotated[
    dict[str, Any], Meta(description="With a `format`, or `structures` and `triggers`.")
]


class ResponseFormat(Struct):
    """Of a structural tag, `structures` and `triggers`, or a `format`."""

    type: Literal["text", "json_object", "json_schema", "structural_tag"] = "text"
    json_schema: JsonSchema | None = None
    structures: list[dict[str, Any]] | None = None
    triggers: list[str] | None = None
    format: dict[str, Any] | None = None


class StructuredOutputs(Struct, forbid_unknown_fields=True):
    """One of these at most. What is not here would change the answer."""

    json: Schema | str | None = None
    regex: str | None = None
    choice: Choices | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: StructuralTag | str | None = None
    disable_fallback: bool | None = None  # there is none
    disable_any_whitespace: bool | None = None  # refused, like what follows, unless it asks for nothing
    disable_additional_properties: bool | None = None
    whitespace_pattern: str | None = None
