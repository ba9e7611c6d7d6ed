"""Requests for answers of a form, of many kinds, and their judges, who know nothing of blink's grammars but
use jsonschema and Python's regular expressions.

All forms are bounded, so that an answer ends long before MAX_TOKENS.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jsonschema

MAX_TOKENS = 1200
THOUGHTS = 16  # tokens, of answers with reasoning
FORMATS = ("date", "ipv4", "uuid")  # those that jsonschema checks by itself
WORDS = ("red", "green", "später", "7 8 9", "true", "a\"b", "", "the end", "x" * 20)  # fmt: skip
QUESTIONS = (
    "Who?",
    "Count from 1 to 12.",
    'Repeat the text "1 2 3 1 2 3 1 2 3".',
    "Write the 3 times table.",
    "Tell me a story about a fox.",
)
EXPRESSIONS = (
    r"[A-Z]{3}-\d{4}",
    r"(ab|ba|abba){8,20}",
    r"(\d{1,3}, ){4,12}\d{1,3}",
    r"(0x[0-9a-f]{2} ?){3,9}",
    r"[a-zäöü ]{5,60}\.",
    r"(yes|no|maybe)(; (yes|no|maybe)){0,6}",
    r"\{\"n\": (0|[1-9]\d{0,5})\}",
)
GRAMMARS = (  # in GBNF, and as a regular expression
    ('root ::= "(" inner ")"\ninner ::= [0-9]{1,3} | "[" [a-z]{1,8} "]"', r"\((\d{1,3}|\[[a-z]{1,8}\])\)"),
    ('root ::= line{2,6}\nline ::= [a-z]{1,9} "=" [0-9]{1,4} "\\n"', r"([a-z]{1,9}=\d{1,4}\n){2,6}"),
)
TAG_NUMBER = {"type": "json_schema", "json_schema": {"type": "integer", "minimum": 0, "maximum": 999}}
TAG_TEXT = r"<n>\d{1,3}</n>( <n>\d{1,3}</n>){0,3}"
Body = dict[str, Any]
Judge = Callable[[Body], None]  # of a choice of an answer; raises Wrong


class Wrong(Exception):
    """An answer that has ended by itself and is not what was asked for."""


@dataclass(frozen=True)
class Case:
    """`fields` of a chat completion, and who judges its choice."""

    kind: str
    fields: Body
    judge: Judge


def string(rng: random.Random) -> Body:
    bounds: Body = {"type": "string", "maxLength": rng.choice((1, 8, 24))}
    kinds = (bounds, {"type": "string", "pattern": r"^[a-z]{2,6}(-[a-z]{2,6}){0,3}$"}, {"enum": list(WORDS)})
    return rng.choice((*kinds, {"type": "string", "format": rng.choice(FORMATS)}))


def number(rng: random.Random) -> Body:
    low = rng.randrange(-500, 500)
    whole = {"type": "integer", "minimum": low, "maximum": low + rng.randrange(1000)}
    multiples = {"type": "integer", "multipleOf": rng.choice((2, 5, 25)), "minimum": 0, "maximum": 1000}
    return rng.choice((whole, multiples, {"type": "number", "minimum": low, "exclusiveMaximum": low + 10}))


def value(rng: random.Random, depth: int) -> Body:
    """A schema of some kind that holds others `depth` deep."""
    simple = (string, string, number, lambda _: {"type": "boolean"}, lambda _: {"const": ["x", 1, None]})
    if depth == 0 or rng.random() < 0.5:
        return rng.choice(simple)(rng)
    kind = rng.choice(("object", "array", "anyOf"))
    if kind == "array":
        return {"type": "array", "items": value(rng, depth - 1), "minItems": 1, "maxItems": rng.randint(2, 6)}
    if kind == "anyOf":
        return {"anyOf": [{"type": "null"}, value(rng, depth - 1)]}
    return thing(rng, depth - 1)


def thing(rng: random.Random, depth: int = 2) -> Body:
    """A schema of objects."""
    names = rng.sample(("name", "age", "tags", "role", "größe", "is_new", "id", "points"), rng.randint(1, 5))
    properties = {name: value(rng, depth) for name in names}
    required = [name for name in names if rng.random() < 0.8]
    return {
        "type": "object", "properties": properties, "required": required, "additionalProperties": False,
    }  # fmt: skip


def check_json(text: str, schema: Body) -> None:
    try:
        jsonschema.validate(json.loads(text), schema, format_checker=jsonschema.FormatChecker())
    except (ValueError, jsonschema.ValidationError) as error:
        raise Wrong(f"{text!r}: {str(error).splitlines()[0]}") from None


def matches(pattern: str) -> Judge:
    def judge(choice: Body) -> None:
        text = choice["message"]["content"]
        if not re.fullmatch(pattern, text, re.DOTALL | re.ASCII):
            raise Wrong(f"{text!r} does not match {pattern}")

    return judge


def is_one_of(texts: list[str]) -> Judge:
    def judge(choice: Body) -> None:
        if choice["message"]["content"] not in texts:
            raise Wrong(f"{choice['message']['content']!r} is none of {texts}")

    return judge


def is_valid(schema: Body) -> Judge:
    return lambda choice: check_json(choice["message"]["content"], schema)


def calls(tools: dict[str, Body], most: int | None) -> Judge:
    """Of an answer of calls and nothing else, with arguments that are valid: `tools` are their schemas."""

    def judge(choice: Body) -> None:
        found, said = choice["message"].get("tool_calls") or [], choice["message"]["content"]
        if choice["finish_reason"] != "tool_calls" or not found or said or len(found) > (most or len(found)):
            raise Wrong(f"{len(found)} calls, {choice['finish_reason']}, beside {said!r}")
        for call in found:
            function = call["function"]
            if function["name"] not in tools:
                raise Wrong(f"there is no tool {function['name']!r}")
            check_json(function["arguments"], tools[function["name"]])

    return judge


def after_thoughts(case: Case) -> Case:
    """The same with reasoning before it, which ends behind THOUGHTS tokens."""

    def judge(choice: Body) -> None:
        if not choice["message"].get("reasoning_content"):
            raise Wrong(f"no reasoning: {choice}")
        case.judge(choice)

    fields = {**case.fields, "thinking_token_budget": THOUGHTS}
    return Case(f"{case.kind} after thoughts", fields, judge)


def schema_case(rng: random.Random) -> Case:
    schema = thing(rng)
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    return Case("schema", {"response_format": form}, is_valid(schema))


def text_case(rng: random.Random) -> Case:
    """Of a regular expression, a choice, a grammar or tags."""
    kind = rng.choice(("regex", "regex", "choice", "grammar", "tags"))
    if kind == "regex":
        pattern = rng.choice(EXPRESSIONS)
        return Case(kind, {"structured_outputs": {"regex": pattern}}, matches(pattern))
    if kind == "choice":
        texts = rng.sample([word for word in WORDS if word], 4)
        return Case(kind, {"structured_outputs": {"choice": texts}}, is_one_of(texts))
    if kind == "grammar":
        rules, pattern = rng.choice(GRAMMARS)
        return Case(kind, {"structured_outputs": {"grammar": rules}}, matches(pattern))
    tag = {"type": "tag", "begin": "<n>", "content": TAG_NUMBER, "end": "</n>"}
    more = {
        "type": "repeat", "min": 0, "max": 3,
        "content": {"type": "sequence", "elements": [{"type": "const_string", "value": " "}, tag]},
    }  # fmt: skip
    form = {"format": {"type": "sequence", "elements": [tag, more]}}
    return Case(kind, {"structured_outputs": {"structural_tag": form}}, matches(TAG_TEXT))


def tool_case(rng: random.Random) -> Case:
    schemas = {name: thing(rng, 1) for name in rng.sample(("get_weather", "add", "find", "send"), 2)}
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema}}
        for name, schema in schemas.items()
    ]
    name = rng.choice(list(schemas))
    if rng.random() < 0.5:
        fields: Body = {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False}
        return Case("tools", fields, calls(schemas, 1))
    named = {"type": "function", "function": {"name": name}}
    return Case("named tool", {"tools": tools, "tool_choice": named}, calls({name: schemas[name]}, None))


MAKERS = (schema_case, schema_case, text_case, tool_case)


def make_cases(n: int, seed: int, with_thoughts: bool) -> list[Case]:
    """`n` of them. With thoughts: those that have JSON."""
    rng = random.Random(seed)
    if with_thoughts:
        return [after_thoughts(rng.choice((schema_case, tool_case))(rng)) for _ in range(n)]
    return [rng.choice(MAKERS)(rng) for _ in range(n)]


def body_of(case: Case, number: int) -> Body:
    """The request with this number: another question, seed and temperature each."""
    rng = random.Random(number)
    return {
        "model": "m",
        "messages": [{"role": "user", "content": rng.choice(QUESTIONS)}],
        "max_tokens": MAX_TOKENS,
        "temperature": rng.choice((0.0, 0.7, 1.0)),
        "seed": number,
        **case.fields,
    }
