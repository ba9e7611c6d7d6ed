"""Writes docs/request-fields.md from the models of requests (nic_frontend/api/schema).

scripts/generate_fields.py [--check]: with --check nothing is written, and an outdated page is an error.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nic_frontend.api.schema.chat import ChatRequest  # noqa: E402
from nic_frontend.api.schema.generation import CompletionRequest  # noqa: E402
from nic_frontend.api.schema.messages import MessagesRequest  # noqa: E402
from nic_frontend.api.schema.responses import ResponsesRequest  # noqa: E402
from nic_frontend.api.schema.rows import Row, rows  # noqa: E402

PAGE = ROOT / "docs" / "request-fields.md"
MODELS: dict[str, type] = {
    "completions": CompletionRequest,
    "chats": ChatRequest,
    "responses": ResponsesRequest,
    "messages": MessagesRequest,
}
HEAD = """# The fields of a request

`scripts/generate_fields.py` writes this page from the models of the requests
([nic_frontend/api/schema](../nic_frontend/api/schema)). [api.md](api.md) says more about some of them. A
field may be null, which is as if it were left out. *Neutral* are the values with which a field asks for
nothing: an endpoint that does not have the field takes these, and refuses others with 400. Where no value
is neutral, but null is, the column says so; where it is empty, an endpoint without the field says nothing
about it. *(model)* means that the model's `generation_config.json` decides where a request leaves the field
out.

| field | endpoints | what it may be | neutral |
|---|---|---|---|
"""


def page() -> str:
    names = dict.fromkeys(name for model in MODELS.values() for name in model.__struct_fields__)  # type: ignore[attr-defined]
    return HEAD + "".join(f"{_line(name)}\n" for name in sorted(names))


def _line(name: str) -> str:
    having = {where: model for where, model in MODELS.items() if name in model.__struct_fields__}  # type: ignore[attr-defined]
    kinds = {where: _kind(model, name) for where, model in having.items()}
    row = next((found for model in having.values() if (found := rows(model).get(name))), None)
    where = "all" if len(having) == len(MODELS) else ", ".join(having)
    if len(set(kinds.values())) == 1:
        kind = next(iter(kinds.values()))
    else:
        kind = "; ".join(f"in {where}: {kind}" for where, kind in kinds.items())
    return f"| `{name}` | {where} | {kind} | {_neutral(row)} |"


def _neutral(row: Row | None) -> str:
    if row is None:
        return ""
    told = ", ".join(f"`{msgspec.json.encode(value).decode()}`" for value in row.neutral) or "null"
    return f"{told} (model)" if row.of_model else told


def _kind(model: type, name: str) -> str:
    schema = msgspec.json.schema(model)
    found = schema["$defs"][model.__name__]["properties"][name]
    told = [_told(one) for one in found.get("anyOf", [found])]
    text = " or ".join(one for one in told if one != "null")
    description = next(
        (one["description"] for one in [found, *found.get("anyOf", [])] if "description" in one), ""
    )
    return f"{text}. {description}".rstrip(" .").replace("|", "\\|") if description else text


def _told(schema: dict[str, Any]) -> str:
    """One alternative of a JSON schema in words."""
    if "$ref" in schema:
        return "an object"
    if "enum" in schema:
        return ", ".join(f'`"{value}"`' for value in schema["enum"] if value is not None)
    if "anyOf" in schema or "oneOf" in schema:
        return "an object"
    kind = schema.get("type", "anything")
    if kind == "null":
        return kind
    if kind == "array":
        most = f" of up to {schema['maxItems']}" if "maxItems" in schema else ""
        return f"an array{most}"
    articles = {"integer": "an integer", "object": "an object", "anything": "anything"}
    return articles.get(kind, f"a {kind}") + _range(schema)


def _range(schema: dict[str, Any]) -> str:
    words = {
        "minimum": "at least",
        "exclusiveMinimum": "above",
        "maximum": "at most",
        "exclusiveMaximum": "below",
        "minLength": "of at least",
        "maxProperties": "of at most",
    }
    bounds = [
        f"{word} {schema[name]:g}" if abs(schema[name]) < 1e6 else f"{word} {schema[name]}"
        for name, word in words.items()
        if name in schema
    ]
    unit = " characters" if "minLength" in schema else " members" if "maxProperties" in schema else ""
    return f" {' and '.join(bounds)}{unit}" if bounds else ""


def main() -> None:
    text = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text() != text:
            sys.exit("docs/request-fields.md is not up to date: run scripts/generate_fields.py")
        return
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
