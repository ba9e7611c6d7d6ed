"""Schemas as users write them: what answers look like, and what is refused."""

# ruff: noqa: E501 (schemas are long)

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from walking import MAX_WORDS, RandomAnswers, grammar_of, schema_taken, taken

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


@pytest.mark.parametrize("schema", [NODE, UNION, USUAL], ids=["recursive", "union", "usual"])
def test_answers_are_valid(schema: Any) -> None:
    grammar = grammar_of(of_schema(schema))
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    answers = RandomAnswers(grammar, random.Random(5))
    for _ in range(25):
        answer = answers.one()
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
        ({"properties": {"a": {"pattern": "^[a-z]{,3}$"}}}, r"write \{0,3\}.*\(at #/properties/a/pattern\)"),
    ],
)  # fmt: skip
def test_what_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(GrammarRefused, match=why):
        of_schema(schema)


CIRCLE = {f"n{i}": {"$ref": f"#/$defs/n{(i + 1) % 300}"} for i in range(300)}


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"$ref": "#"}, "#"),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}}, "#/$defs/n"),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n", "title": "N", "default": 1}}}, "#/$defs/n"),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/m"}, "m": {"$ref": "#/$defs/n"}}}, "#/$defs/n"),
        ({"properties": {"a": {"$ref": "#/$defs/n0"}}, "$defs": CIRCLE}, "#/$defs/n0"),
        ({"items": {"$ref": "#/items"}}, "#/items"),
        ({"allOf": [{"$ref": "#"}]}, "#"),
        ({"items": {"allOf": [{"allOf": [{"$ref": "#/items"}]}]}}, "#/items"),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"allOf": [{"type": "integer"}, {"$ref": "#/$defs/n"}]}}}, "#/$defs/n"),
        ({"enum": [1], "$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}}, "#/$defs/n"),
        ({"anyOf": [{"type": "null"}, {"$ref": "#/$defs/n"}], "$defs": {"n": {"$ref": "#/$defs/n"}}}, "#/$defs/n"),
        ({"not": {"$ref": "#/$defs/n"}, "$defs": {"n": {"$ref": "#/$defs/n"}}}, "#/$defs/n"),
        ({"$dynamicAnchor": "x", "$dynamicRef": "#x"}, "#"),
        ({"$recursiveAnchor": True, "$recursiveRef": "#"}, "#"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#", "allOf": [{}]}, "#"),
    ],
)  # fmt: skip
def test_schemas_that_refer_only_to_themselves_are_refused(schema: Any, where: str) -> None:
    """Validators never end at them; a grammar would allow any text in their place."""
    with pytest.raises(GrammarRefused) as refused:
        compiled(of_schema(schema), MAX_WORDS)
    assert (refused.value.message, refused.value.where) == ("it refers only to itself", where)


def test_schemas_that_are_referred_to_twice_and_lists_of_themselves_are_taken() -> None:
    whole = {"type": "integer"}
    twice = {"allOf": [{"$ref": "#/$defs/i"}, {"allOf": [{"$ref": "#/$defs/i"}]}], "$defs": {"i": whole}}
    assert taken(of_schema(twice), "7", '"a"') == [True, False]
    list_of_itself = {"type": "array", "items": {"allOf": [{"$ref": "#"}]}}
    assert taken(of_schema(list_of_itself), "[[],[[]]]", "[1]") == [True, False]
    chain = {"$defs": {**CIRCLE, "n299": whole}, "$ref": "#/$defs/n200"}
    assert taken(of_schema(chain), "7", '"a"') == [True, False]


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
    names = {"properties": {name: {"type": "null"} for name in ("class", "user-id", "a b")}}
    good = ["class=null", "user-id=null", '**{"a b": null}', 'class=null, user-id=null, **{"a b": null}']
    assert taken(of_keywords(names), *good, "a b=null") == [True] * 4 + [False]
    further = {"properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}}
    assert taken(of_keywords(further), "a=null, b=1, c=2", "a=1", "b=null", "") == [True, False, False, True]
    assert taken(of_keywords({"type": "object"}), "a=1, b=[]", "") == [True, True]
