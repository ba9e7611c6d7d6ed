"""Schemas as users write them: what answers look like, and what is refused."""

# ruff: noqa: E501 (schemas are long)

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from walking import MAX_WORDS, grammar_of, random_answer, taken

from nic_frontend.grammar.compiler import compiled
from nic_frontend.grammar.keyword_arguments import of_keywords
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.schema import of_object_schema, of_schema
from ringbuffer.grammar import accepts

NODE: dict[str, Any] = {
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
            },
            "required": ["value", "next"],
        }
    },
    "$ref": "#/$defs/Node",
}
UNION: dict[str, Any] = {  # as pydantic writes one that is told apart by a property
    "oneOf": [
        {"type": "object", "properties": {"kind": {"const": kind}, field: {"type": "string"}}, "required": ["kind", field]}
        for kind, field in (("cat", "meows"), ("dog", "barks"))
    ]
}  # fmt: skip
USUAL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 40, "title": "Name", "description": "..."},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "share": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "email": {"type": "string", "format": "email"},
        "born": {"type": "string", "format": "date"},
        "role": {"enum": ["admin", "user", None, 3]},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}, "minItems": 1, "maxItems": 3},
        "point": {"type": "array", "prefixItems": [{"type": "number"}, {"type": "number"}], "minItems": 2},
        "extra": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "note": {"type": ["string", "null"], "default": None},
    },
    "required": ["name", "age", "share", "email", "born", "role", "tags", "point", "extra"],
    "additionalProperties": False,
}  # fmt: skip


def schema_taken(schema: Any, *texts: str) -> list[bool]:
    return taken(of_schema(schema), *texts)


@pytest.mark.parametrize("schema", [NODE, UNION, USUAL], ids=["recursive", "union", "usual"])
def test_answers_are_valid(schema: Any) -> None:
    grammar = grammar_of(of_schema(schema))
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    source = random.Random(5)
    for _ in range(25):
        answer = random_answer(grammar, source)
        assert answer is None or validator.is_valid(json.loads(answer)), answer


def test_whitespace() -> None:
    """What encoders and models write, and never without end."""
    schema = {"properties": {"a": {"items": {"type": "integer"}}, "b": {"type": "object"}}, "required": ["a"]}
    value = {"a": [1, 2], "b": {}}
    texts = [json.dumps(value, indent=indent) for indent in (None, 1, 2, 4)]
    texts.append(json.dumps(value, separators=(",", ":")))
    assert schema_taken(schema, *texts) == [True] * 5
    assert (
        schema_taken(schema, '{"a":  []}', '{\n\n"a": []}', '{"a" : []}', ' {"a": []}', '{"a": []} ')
        == [False] * 5
    )


def test_order_and_what_may_be_left_out() -> None:
    schema = {
        "properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}},
        "required": ["b"],
    }
    good = ['{"b":null}', '{"a":null,"b":null}', '{"b":null,"c":null}', '{"a":null,"b":null,"c":null}']
    bad = [
        "{}",
        '{"a":null}',
        '{"b":null,"a":null}',
        '{"b":null,"d":null}',
        '{,"b":null}',
        '{"b":null,}',
        "null",
    ]
    assert schema_taken(schema, *good, *bad) == [True] * 4 + [False] * 7


def test_further_properties() -> None:
    open_ended = {"properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}}
    good, bad = ['{"a":null,"b":1,"c":2}', '{"aa":1}', "{}"], ['{"a":1}', '{"b":null}', '{"b":1,"a":null}']
    assert schema_taken(open_ended, *good, *bad) == [True] * 3 + [False] * 3
    patterns = {"patternProperties": {"^x": {"type": "integer"}, "y$": {"maximum": 3}}}
    assert schema_taken(patterns, '{"x":9}', '{"xy":3}', '{"xy":4}', '{"z":1}') == [True, True, False, False]


def test_nesting_ends_in_time() -> None:
    """F18: a chain that has to go on is not begun where the stack has no room for its end."""
    grammar = grammar_of(of_schema(NODE))
    text, depth = "", 0
    while accepts(grammar, (text + '{"value":1,"next":null}' + "}" * depth).encode()):
        text, depth = text + '{"value":1,"next":', depth + 1
    assert 25 < depth < 33


def test_alternatives() -> None:
    assert schema_taken(UNION, '{"kind":"cat","meows":"x"}', '{"kind":"dog","meows":"x"}') == [True, False]
    either = {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 2}]}
    assert schema_taken(either, "1", "2.5", "3") == [True, False, False]  # fractions above 2 are left out
    condition = {
        "type": "object",
        "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "integer"}},
        "required": ["a"],
        "if": {"properties": {"a": {"const": "x"}}, "required": ["a"]},
        "then": {"required": ["b"]},
        "else": {"properties": {"b": False}},
    }
    texts = ['{"a":"x","b":1}', '{"a":"y"}', '{"a":"x"}', '{"a":"y","b":1}']
    assert schema_taken(condition, *texts) == [True, True, False, False]
    assert schema_taken({"type": "string", "not": {"enum": ["no"]}}, '"yes"', '"no"') == [True, False]


def test_sets() -> None:
    schema = {"type": "array", "items": {"enum": ["a", 1, None]}, "uniqueItems": True, "minItems": 1}
    good, bad = ['["a"]', '["a",1]', '["a", null]', "[1,null]"], ["[]", '["a","a"]', '[1,"a"]', "[2]"]
    assert schema_taken(schema, *good, *bad) == [True] * 4 + [False] * 4
    single = {"type": "array", "uniqueItems": True, "maxItems": 1}
    assert schema_taken(single, "[]", '["x"]', "[1,2]") == [True, True, False]


def test_large_schemas_stay_small() -> None:
    """What is used in many places is called, and strings have one state."""
    part = {"type": "object", "properties": {f"field_{i}": {"type": "string"} for i in range(12)}}
    many = {
        "type": "object",
        "properties": {f"part_{i}": {"$ref": "#/$defs/part"} for i in range(30)},
        "$defs": {"part": part},
    }
    once = len(compiled(of_schema(part), MAX_WORDS))
    assert len(compiled(of_schema(many), MAX_WORDS)) < 4 * once
    assert len(compiled(of_schema({"type": "string", "maxLength": 1000}), MAX_WORDS)) < 25_000


def test_lengths() -> None:
    """Characters are counted, whatever their bytes and escapes are."""
    schema = {"type": "string", "minLength": 3, "maxLength": 300}
    grammar = grammar_of(of_schema(schema))
    for n in (2, 3, 64, 171, 172, 173, 236, 237, 299, 300, 301):
        mixed = ("aé\\n😀" * n)[: n + n // 4 + (n % 4 > 2)]
        for text in ("a" * n, "é" * n, "😀" * n, "\\u00e9" * n, mixed):
            assert json.loads(f'"{text}"') is not None
            assert accepts(grammar, f'"{text}"'.encode()) == (3 <= n <= 300), (n, text)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "array", "uniqueItems": True}, r"'uniqueItems' is not supported \(at #/uniqueItems\)"),
        ({"properties": {"a/b": {"$ref": "other.json"}}}, r"another document.*\(at #/properties/a~1b/\$ref\)"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "x"}}}, r"'type' must be .*\(at #/\$defs/a/type\)"),
        ({"anyOf": []}, r"at #/anyOf"),
        ({"allOf": {}}, r"at #/allOf"),
        ({"minLength": -1}, r"at #/minLength"),
        ({"pattern": "("}, r"at #/pattern"),
        ({"type": "number", "multipleOf": 99.97}, r"multiples of 9997 / 10\^2 need more .* \(at #/multipleOf\)"),
        ({"properties": []}, r"at #/properties"),
        ({"required": "a"}, r"at #/required"),
        ({"enum": 1}, r"at #/enum"),
        ({"items": {"$ref": "http://["}}, r"'http://\[' is no URI.*\(at #/items/\$ref\)"),
        ({"items": {"$id": "http://["}}, r"is no URI.*\(at #/items/\$id\)"),
        ({"items": 1}, "a schema must be an object or a boolean"),
        ({"oneOf": [{"format": "date"}, {"format": "time"}]}, r"more than one of its alternatives.*\(at #/oneOf\)"),
        ({"not": {"format": "date"}}, r"the opposite of 'format' is not supported \(at #/not/format\)"),
        ({"contains": {}, "maxContains": 100}, r"'maxContains' is supported up to 32 .*\(at #/contains\)"),
        ({"$defs": {"a": {"$id": "a", "$dynamicAnchor": "x"}, "b": {"$dynamicAnchor": "x"}}, "$dynamicRef": "#x"}, r"may mean several schemas \(at #/\$dynamicRef\)"),
        ({"format": "regex"}, r"the format 'regex' is not supported \(at #/format\)"),
        ({"$dynamicRef": "#x"}, r"\$dynamicRef"),
    ],
)  # fmt: skip
def test_what_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(GrammarRefused, match=why):
        of_schema(schema)


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
    source = random.Random(5)
    for _ in range(5):
        answer = random_answer(grammar, source)
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


def test_dynamic_references_that_can_mean_one_schema() -> None:
    """A tree, and what only the standard's own way of extending schemas tells apart."""
    tree = {
        "$dynamicAnchor": "node",
        "type": "object",
        "properties": {"n": {"type": "integer"}, "next": {"$dynamicRef": "#node"}},
        "required": ["n"],
    }
    old = {
        "$recursiveAnchor": True,
        "type": "object",
        "properties": {"n": {"type": "integer"}, "next": {"$recursiveRef": "#"}},
        "required": ["n"],
    }
    for schema in (tree, old):
        assert schema_taken(schema, '{"n": 1, "next": {"n": 2}}', '{"n": 1, "next": {}}') == [True, False]
    assert schema_taken({"not": old, "enum": [1, {"n": 1}]}, "1", '{"n": 1}') == [True, False]


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


def hostile() -> list[Any]:
    nested: Any = {"type": "null"}
    for _ in range(90):
        nested = {"properties": {"a": nested}}
    doubling: Any = {"type": "null"}
    for i in range(40):
        doubling = {"anyOf": [{"properties": {f"a{i}": doubling}}, {"properties": {f"b{i}": doubling}}]}
    return [
        nested,
        {"allOf": [{"anyOf": [{"minimum": i + k} for k in range(4)]} for i in range(12)]},
        {"type": "string", "pattern": "^(a|b)*a(a|b){30}$"},
        {"type": "array", "items": {"type": "string", "maxLength": 5000}, "maxItems": 5000},
        {"enum": list(range(5000))},
        {"properties": {f"p{i}": {"type": "string"} for i in range(30_000)}},
        {"$ref": "#"},
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
    ]


@pytest.mark.parametrize("number", range(8))
def test_hostile_schemas_are_refused(number: int) -> None:
    """F19. A reference to itself alone says nothing, and is any value."""
    schema = hostile()[number]
    try:
        compiled(of_schema(schema), MAX_WORDS)
    except GrammarRefused:
        return
    assert schema == {"$ref": "#"}


def test_arguments() -> None:
    """Of tools: always an object, and by name where a model writes Python."""
    assert taken(of_object_schema({}), "{}", "1") == [True, False]
    schema = {"properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}, "required": ["a"]}
    assert taken(of_keywords(schema), "a=1", "a=1, b=true", "b=true", "") == [True, True, False, False]
    with pytest.raises(GrammarRefused, match="argument's name"):
        of_keywords({"properties": {"class": {}}})
