"""Draws requests' bodies by the API's own description, right and wrong ones."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

DEPTH = 6
NUMBERS = [0, 1, -1, 2, 5, 2**31, -(2**31), 2**53, 2**63, 2**64, 10**400, 0.5, -0.0, 1e308, 1e400, 1.5]
NUMBERS.append(float("nan"))
TEXTS = [
    "",
    "x",
    "hello",
    "\0",
    "\ud800",
    "é漢😀",
    "<|im_end|>",
    "<|eos|>",
    "a" * 3000,
    "{{ 7 * 7 }}",
    "{% for",
    "\\",
    '"',
    "ﷺ" * 50,
    "<tool_call>",
    "</think>",
    "assistant",
    "user",
    "system",
    "tool",
    "function",
    "auto",
    "none",
    "required",
    "tiny",
]
FORMS: list[Any] = [None, True, False, [], {}, [[]], [{}], {"type": "text"}, {"type": "function"}]
FORMS.append({"a": {"b": {"c": []}}})
NESTED = ("not", "if", "then", "else", "items", "contains", "propertyNames", "additionalProperties")
LISTS_OF_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems")
MAPS_OF_SCHEMAS = ("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs")
KEYWORDS: dict[str, list[Any]] = {  # with some that are right
    "type": ["string", "integer", "number", "object", "array", ["null", "boolean"]],
    "enum": [["a", 1], [{}, [], None], [0.5, 10**40]],
    "const": [1, "a", {"a": 1}, None],
    "required": [["a"], ["a", "b"]],
    "dependentRequired": [{"a": ["b"]}, {"a": 5}],
    "pattern": ["^a+$", "[", "b"],
    "format": ["date", "regex", "unknown"],
    "minLength": [0, 2, 2.0],
    "maxLength": [3],
    "minItems": [1],
    "maxItems": [2],
    "minProperties": [1],
    "maxProperties": [2],
    "minContains": [0, 1],
    "maxContains": [2],
    "uniqueItems": [True],
    "minimum": [0, -1.5],
    "maximum": [10],
    "exclusiveMinimum": [0, True],
    "exclusiveMaximum": [10, True],
    "multipleOf": [2, 0.1, 0],
    "$ref": ["#", "#/$defs/a", "http://[", "other"],
    "$schema": ["http://json-schema.org/draft-04/schema#"],
    "$id": ["http://[", "a"],
    "unevaluatedProperties": [False],
}
RAW = [
    b"",
    b"{",
    b"[" * 5000,
    b'{"a":' * 3000,
    b"nul",
    b"{}{}",
    b'{"prompt": "x"}\0',
    b"\xef\xbb\xbf{}",
    b"\xff\xfe{}",
    b"1e999999",
    b'{"prompt": "\xff"}',
    b'{"prompt": "x", "prompt": 5}',
    b"[" + b"1," * 5000 + b"1]",
    b'{"n": ' + b"9" * 5000 + b"}",
]


def draw_body(seed: int, endpoints: dict[str, dict[str, Any]], schemas: dict[str, Any]) -> tuple[str, bytes]:
    """A path and what is posted to it. `endpoints`: the schema of each path's body."""
    rng = random.Random(seed)
    path = rng.choice([*endpoints])
    if rng.random() < 0.05:
        return path, rng.choice(RAW)
    body = Drawer(rng, schemas, rng.choice([0.0, 0.02, 0.1, 0.4])).value(endpoints[path], 0)
    if isinstance(body, dict):
        bound = rng.choice(["max_tokens", "max_tokens", "max_output_tokens", "max_completion_tokens"])
        body[bound] = rng.choice([1, 2, 5, 30])
        if rng.random() < 0.1:
            body[rng.choice(TEXTS)] = copy.deepcopy(rng.choice(FORMS))
    content = json.dumps(body, ensure_ascii=rng.random() < 0.7).encode(errors="surrogatepass")
    if rng.random() < 0.1 and content:
        at = rng.randrange(len(content))
        content = (
            content[:at] + rng.choice([b"", b",", b"\\u", b"\xff", b"]", b'"', b"\0"]) + content[at + 1 :]
        )
    return path, content


class Drawer:
    """Values that a JSON schema describes, of which each is something else with the chance `wrong`."""

    def __init__(self, rng: random.Random, schemas: dict[str, Any], wrong: float) -> None:
        self._rng, self._schemas, self._wrong = rng, schemas, wrong

    def value(self, schema: dict[str, Any], depth: int) -> Any:
        rng = self._rng
        if rng.random() < self._wrong or depth > DEPTH:
            return rng.choice([rng.choice(NUMBERS), rng.choice(TEXTS), self._form()])
        if reference := schema.get("$ref"):
            return self.value(self._schemas[reference.rsplit("/", 1)[1]], depth)
        for choice in ("anyOf", "oneOf"):
            if choice in schema:
                return self.value(rng.choice(schema[choice]), depth)
        if "enum" in schema:
            return rng.choice(schema["enum"])
        if "const" in schema:
            return schema["const"]
        kind = schema.get("type")
        draw = getattr(self, f"_{kind}", None) if isinstance(kind, str) else None
        return draw(schema, depth) if draw else self._form()

    def _form(self) -> Any:
        return copy.deepcopy(self._rng.choice(FORMS))

    def json_schema(self, depth: int = 0) -> Any:
        """One that an answer may be held to, with keywords of wrong types in it."""
        rng = self._rng
        if rng.random() < self._wrong or depth > DEPTH:
            return rng.choice([rng.choice(NUMBERS), rng.choice(TEXTS), self._form()])
        found: dict[str, Any] = {}
        for _ in range(rng.choice([1, 1, 2, 3])):
            form = rng.randrange(6)
            if form < 2:
                found["not" if form else rng.choice(NESTED)] = self.json_schema(depth + 1)
            elif form == 2:
                found[rng.choice(LISTS_OF_SCHEMAS)] = [self.json_schema(depth + 1) for _ in range(2)]
            elif form == 3:
                found[rng.choice(MAPS_OF_SCHEMAS)] = {"a": self.json_schema(depth + 1)}
            else:
                keyword = rng.choice([*KEYWORDS])
                is_wrong = rng.random() < self._wrong
                choices = NUMBERS + TEXTS + FORMS if is_wrong else KEYWORDS[keyword]
                found[keyword] = copy.deepcopy(rng.choice(choices))
        return found

    def _null(self, schema: dict[str, Any], depth: int) -> None:
        return None

    def _boolean(self, schema: dict[str, Any], depth: int) -> bool:
        return self._rng.random() < 0.5

    def _integer(self, schema: dict[str, Any], depth: int) -> int:
        low = schema.get("minimum", -3)
        return self._rng.choice(
            [low, low + 1, self._rng.randint(low, low + 10), schema.get("maximum", low + 3)]
        )

    def _number(self, schema: dict[str, Any], depth: int) -> float:
        low, high = schema.get("minimum", 0), schema.get("maximum", 2)
        return self._rng.choice([low, high, self._rng.uniform(low, high)])

    def _string(self, schema: dict[str, Any], depth: int) -> str:
        return self._rng.choice(TEXTS)

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        n = self._rng.choice([schema.get("minItems", 0), 1, 1, 2, 3, 20])
        items = schema.get("items", {})
        return [self.value(items if isinstance(items, dict) else {}, depth + 1) for _ in range(n)]

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        if "properties" not in schema and self._rng.random() < 0.5:
            return self.json_schema(depth)
        required = schema.get("required", [])
        share = self._rng.choice([0.0, 0.1, 0.5])
        return {
            name: self.value(of, depth + 1)
            for name, of in schema.get("properties", {}).items()
            if (name in required and self._rng.random() >= self._wrong) or self._rng.random() < share
        }
