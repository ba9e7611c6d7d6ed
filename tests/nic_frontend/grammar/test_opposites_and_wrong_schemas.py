"""Schemas for what a value is not, and keywords that are malformed or unknown."""

# ruff: noqa: E501 (schemas are long)

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from walking import MAX_WORDS, RandomAnswers, grammar_of, schema_taken

from nic_frontend.grammar.compiler import compiled
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.schema import of_schema
from ringbuffer.grammar import accepts

MALFORMED: list[tuple[str, Any]] = [
    *((keyword, wrong) for keyword in ("pattern", "allOf", "anyOf", "oneOf", "required", "properties", "enum", "minLength",
                                       "maxItems", "multipleOf", "minimum", "prefixItems", "dependentRequired", "type")
      for wrong in (None, {"a": 5}, "x", [5])
      if (keyword, wrong) not in (("enum", [5]), ("prefixItems", [5]), ("pattern", "x"), ("properties", {"a": 5}), ("type", None))),
    ("multipleOf", float("inf")),
    ("minimum", float("nan")),
    ("exclusiveMaximum", "5"),
    ("dependentSchemas", 5),
    ("dependencies", 5),
    ("patternProperties", 5),
]  # fmt: skip


AROUND = ("{}", '{"not": {}}', '{"oneOf": [{}, {"title": "any"}]}', '{"not": {"not": {}}}')


@pytest.mark.parametrize("around", AROUND)
def test_malformed_keywords_are_refused_at_their_place(around: str) -> None:
    """However they are used: by themselves, for their opposite, and for constants."""
    for keyword, wrong in MALFORMED:
        schema = json.loads(around.replace("{}", json.dumps({keyword: wrong})))
        for given in (schema, {"enum": ["a", {"a": 1}, [1], 5], **schema}):
            with pytest.raises(GrammarRefused, match=f"at #.*/{keyword}"):
                compiled(of_schema(given), MAX_WORDS)


def test_malformed_conditions_on_names() -> None:
    with pytest.raises(GrammarRefused, match=r"'enum' must be an array \(at #/propertyNames/enum\)"):
        of_schema({"propertyNames": {"enum": 5}})


VALUES = [
    json.loads(text)
    for text in ("1", '"a"', '"b"', '"ab"', '"1"', '"\u0661"', '"a\\n"', "[]", "[1]", "[1, 1]", '["a"]', '["a", 1]', '[1, "a"]',
                 '["a", "a", 1]', "[1, 1, 1]", "{}", '{"a": 1}', '{"a": "x"}', '{"a": 1, "b": 2}', '{"b": 2}', '{"\u0661": 1}', '{"1": 1}')
]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "taken_all"),
    [
        ({"type": "array", "items": {}, "contains": {"type": "string"}, "maxContains": 1}, False),
        ({"type": "array", "items": {}, "contains": {"type": "integer"}, "minContains": 0, "maxContains": 2, "maxItems": 2}, False),
        ({"type": "array", "items": {"type": "integer"}, "contains": {"type": "integer"}, "minContains": 2, "maxContains": 2}, True),
        ({"type": "array", "items": {}, "not": {"contains": {"type": "string"}}}, True),
        ({"type": "array", "items": {}, "not": {"contains": {"type": "integer"}, "minContains": 2}}, False),
        ({"type": "array", "not": {"items": {"type": "integer"}}}, False),
        ({"type": "array", "items": {}, "not": {"prefixItems": [{"type": "string"}, {"type": "integer"}]}}, True),
        ({"type": "string", "not": {"pattern": "^a$"}}, True),
        ({"type": "string", "not": {"pattern": "[ab]"}}, True),
        ({"type": "string", "not": {"pattern": r"\d"}}, True),
        ({"type": "string", "not": {"pattern": r"^[^a]"}}, True),
        ({"type": "string", "not": {"pattern": r"^(?=.*b)(?!\d)a"}}, True),
        ({"type": "string", "pattern": r"^(?!\d)."}, True),
        ({"type": "object", "patternProperties": {r"^\d$": False}, "additionalProperties": True}, True),
        ({"oneOf": [{"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}]}, True),
        ({"type": "string", "not": {"oneOf": [{"pattern": "a"}, {"pattern": "b"}]}}, True),
        ({"type": "object", "properties": {"a": {}, "b": {}}, "not": {"dependentRequired": {"a": ["b"]}}}, True),
        ({"type": "object", "properties": {"a": {}, "b": {}}, "not": {"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": False}}, True),
    ],
)  # fmt: skip
def test_opposites_and_counts(schema: Any, taken_all: bool) -> None:
    """Nothing that is not valid is taken, nor made; and of these values, all that are where order is no matter."""
    grammar, validator = grammar_of(of_schema(schema)), jsonschema.Draft202012Validator(schema)
    for value in VALUES:
        texts = [json.dumps(value, ensure_ascii=escapes).encode() for escapes in (False, True)]
        was_taken = any(accepts(grammar, text) for text in texts)
        assert not was_taken or validator.is_valid(value), value
        if (
            taken_all
            and validator.is_valid(value)
            and not any(c in str(value) for c in ("\n", "\u0661", "'1'"))
        ):
            assert was_taken, value
    answers = RandomAnswers(grammar, random.Random(5))
    for _ in range(5):
        answer = answers.one()
        assert answer is None or validator.is_valid(json.loads(answer)), answer


def test_other_numbers() -> None:
    """However they are written, and wherever the opposite of a constant is meant."""
    texts = ("1", "1.0", "0.5", "1.5", "2", "3", "-3", "1000")
    others = {"type": "number", "not": {"enum": [1, 2.0, 3]}}
    assert [text for text in texts if schema_taken(others, text)[0]] == ["0.5", "1.5", "-3", "1000"]
    tenth = {"type": "integer", "not": {"const": 10}}
    assert schema_taken(tenth, "10", "9", "11", "-10", "100") == [False, True, True, True, True]
    within = {"type": "integer", "minimum": 0, "maximum": 2, "not": {"enum": [0, 2, 7]}}
    assert schema_taken(within, "0", "1", "2", "3") == [False, True, False, False]
    halves = {"type": "number", "multipleOf": 0.5, "not": {"const": 0.5}}
    assert schema_taken(halves, "0.5", "0.50", "1.5", "0.6") == [False, False, True, False]
    unlike = {
        "properties": {"a": {"enum": [None, "a", "b"]}},
        "patternProperties": {"a": {"not": {"pattern": "a"}}},
    }
    assert schema_taken(unlike, '{"a": null}', '{"a": "b"}', '{"a": "a"}') == [False, True, False]
    many = {"type": "integer", "not": {"enum": list(range(0, 1000, 2))}}
    assert schema_taken(many, "998", "997", "1000") == [False, True, True]
    with pytest.raises(GrammarRefused, match="no answer can satisfy it"):
        schema_taken({"type": "integer", "minimum": 1, "maximum": 1, "not": {"const": 1}}, "1")


def test_numbers_that_only_some_items_are() -> None:
    schema = {"type": "array", "items": {"type": "number"}, "contains": {"enum": [1, 2]}, "maxContains": 1}
    assert schema_taken(schema, "[1, 3]", "[2, 0.5, 4]", "[1, 2]", "[3]") == [True, True, False, False]


def test_a_condition_on_a_number() -> None:
    """Another number than the condition's leaves free what it asks for."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "m": {"type": "boolean"}},
        "required": ["n"],
        "if": {"properties": {"n": {"const": 3}}},
        "then": {"required": ["m"]},
    }
    texts = ('{"n": 4}', '{"n": 3}', '{"n": 3, "m": true}', '{"n": 5, "m": true}')
    assert schema_taken(schema, *texts) == [True, False, True, True]


@pytest.mark.parametrize(
    "keyword",
    [
        {"x-not": ["a"]},
        {"x-not-pattern": ["a"]},
        {"x-opposite": True},
        {"x-more-properties": False},
        {"x-more-items": 5},
    ],
)
def test_unknown_keywords_say_nothing(keyword: dict[str, Any]) -> None:
    assert schema_taken({**keyword, "type": ["string", "array", "object"]}, '"a"', "[1]") == [True, True]
    assert schema_taken({"not": {**keyword, "type": "string"}}, '"a"', "{}") == [False, True]


@pytest.mark.parametrize(
    ("schema", "taken_ones"),
    [
        ({"not": {"not": {"not": {"pattern": "b"}}}}, ["a", "c"]),
        ({"not": {"allOf": [{"not": {"enum": ["a", "b"]}}]}}, ["a", "b"]),
        ({"not": {"not": {"const": "a"}}}, ["a"]),
    ],
)
def test_opposites_of_opposites(schema: dict[str, Any], taken_ones: list[str]) -> None:
    texts = ("a", "b", "c")
    found = schema_taken({"type": "string", **schema}, *(f'"{text}"' for text in texts))
    assert [text for text, is_taken in zip(texts, found, strict=True) if is_taken] == taken_ones
    # Where items are counted, the schema itself is negated once more.
    counted = {
        "type": "array",
        "items": {"type": "string"},
        "contains": schema,
        "minContains": 0,
        "maxContains": 0,
    }
    found = schema_taken(counted, *(f'["{text}"]' for text in texts))
    assert [text for text, is_taken in zip(texts, found, strict=True) if not is_taken] == taken_ones


def test_bounds_of_draft_4() -> None:
    """There a boolean says that the bound is outside."""
    draft = {"$schema": "http://json-schema.org/draft-04/schema#"}
    above = {"minimum": 3, "exclusiveMinimum": True}
    assert schema_taken({**draft, "type": "integer", "not": above}, "2", "3", "4") == [True, True, False]
    assert schema_taken({**draft, **above, "enum": [3, 4]}, "3", "4") == [False, True]
