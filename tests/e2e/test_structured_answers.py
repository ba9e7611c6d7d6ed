"""Answers of a form that a client asks for, through every layer: schemas, regular expressions, choices,
grammars.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema
import openai
import pytest
from limits import WAIT_S
from serve_process import ServeProcess

WORD = {"type": "string", "maxLength": 8}
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "role": {"enum": ["admin", "user", None]},
        "share": {"type": "number", "minimum": 0, "maximum": 1},
        "tags": {"type": "array", "items": WORD, "maxItems": 3},
    },
    "required": ["name", "age", "role", "share", "tags"],
    "additionalProperties": False,
}
TREE: dict[str, Any] = {
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {
                "label": WORD,
                "left": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]},
            },
            "required": ["label", "left"],
        }
    },
    "$ref": "#/$defs/tree",
}
NUMBER = {"type": "json_schema", "json_schema": {"type": "integer", "minimum": 0, "maximum": 999}}
TAGS = {
    "type": "triggered_tags",
    "triggers": ["<n"],
    "tags": [{"type": "tag", "begin": "<n>", "content": NUMBER, "end": "</n>"}],
    "at_least_one": True,
}
DATE = {"type": "object", "properties": {"day": {"type": "string", "format": "date"}}, "required": ["day"]}


def of_schema(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}


def ask(client: openai.OpenAI, question: str, **changes: Any) -> list[str]:
    """The texts of an answer's choices, which have all ended by themselves."""
    asked = {
        "model": "demo",
        "messages": [{"role": "user", "content": question}],
        "max_tokens": 600,
        **changes,
    }
    answer = client.chat.completions.create(**asked)
    assert {choice.finish_reason for choice in answer.choices} == {"stop"}, answer
    return [choice.message.content for choice in answer.choices]


@pytest.fixture
def client(server: ServeProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=WAIT_S, max_retries=0)


@pytest.mark.parametrize("schema", [PERSON, TREE, DATE], ids=["person", "tree", "date"])
def test_schemas(client: openai.OpenAI, schema: Any) -> None:
    for temperature in (0, 1):
        changes = {"n": 2, "temperature": temperature, "seed": 5, "response_format": of_schema(schema)}
        for text in ask(client, "Who?", **changes):
            checker = jsonschema.FormatChecker()
            jsonschema.validate(json.loads(text), schema, format_checker=checker)


@pytest.mark.parametrize(
    ("wanted", "pattern"),
    [
        ({"regex": r"[A-Z]{3}-\d{4}"}, r"[A-Z]{3}-\d{4}"),
        ({"choice": ["yes", "no", "später"]}, "yes|no|später"),
        ({"grammar": 'root ::= "(" root ")" | [0-9]{1,3}'}, r"\(*[0-9]{1,3}\)*"),
        ({"structural_tag": {"format": TAGS}}, r"<n>\d{1,3}</n>((?!<n).)*(<n>\d{1,3}</n>((?!<n).)*)*"),
    ],
)
def test_other_forms(client: openai.OpenAI, wanted: dict[str, Any], pattern: str) -> None:
    for seed in range(4):
        (text,) = ask(client, "Say it.", seed=seed, extra_body={"structured_outputs": wanted})
        assert re.fullmatch(pattern, text, re.DOTALL), text
        assert text.count("(") == text.count(")")


def test_a_stream(client: openai.OpenAI) -> None:
    asked = {"model": "demo", "messages": [{"role": "user", "content": "Who?"}], "max_tokens": 600}
    chunks = client.chat.completions.create(stream=True, response_format=of_schema(PERSON), **asked)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    jsonschema.validate(json.loads(text), PERSON)


def test_many_schemas_beside_free_answers(client: openai.OpenAI) -> None:
    """Each in one step with others, and those without a form as if they were alone."""
    schemas = [
        {"type": "object", "properties": {f"field_{i}": WORD}, "required": [f"field_{i}"]} for i in range(24)
    ]
    free = {"temperature": 0, "max_tokens": 20}

    def held(i: int) -> bool:
        (text,) = ask(client, "Who?", seed=i, response_format=of_schema(schemas[i]))
        return list(json.loads(text)) == [f"field_{i}"]

    def said(_: int) -> str:
        question = [{"role": "user", "content": "Count from 1 to 5."}]
        answer = client.chat.completions.create(model="demo", messages=question, **free)  # type: ignore[call-overload]
        return str(answer.choices[0].message.content)

    alone = said(0)
    with ThreadPoolExecutor(12) as threads:
        formed, others = threads.map(held, range(24)), threads.map(said, range(8))
        assert all(formed)
        assert set(others) == {alone}
