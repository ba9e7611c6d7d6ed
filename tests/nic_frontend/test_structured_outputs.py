"""What requests want their answers to be: the grammar that goes with each, and what is refused."""

# ruff: noqa: E501 (requests are long)

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from harness import CHAT, COMPLETION, Frontend, Speak, StartBackend, StartFrontend, error_of
from templates import DEEPSEEK, HERMES
from tiny_model import IM_END, TOOL_CALL

from nic_frontend.grammar.spelling import SpecialTexts
from ringbuffer.grammar import accepts, unpack
from ringbuffer.token_bytes import SPECIAL

pytestmark = pytest.mark.usefixtures("kept_frontend")

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
PERSON = '{"name": "Ada", "age": 36}'
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
TAGGED = {"structures": [{"begin": "<p>", "schema": SCHEMA, "end": "</p>"}], "triggers": ["<p"]}
TAG = {"type": "tag", "begin": "<p>", "content": {"type": "regex", "pattern": "[0-9]"}, "end": "</p>"}
NEUTRAL = {"json": None, "disable_any_whitespace": False, "whitespace_pattern": None}
IN_JSON = {"content-type": "application/json"}
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}


def accepted(frontend: Frontend, text: str) -> bool:
    """Whether the last request's answer might have been this text."""
    return accepts(unpack(frontend.backend.accepted[-1].grammar), text.encode())


def post(frontend: Frontend, path: str, body: dict[str, Any]) -> Any:
    answer = frontend.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.parametrize(
    ("fields", "good", "bad"),
    [
        ({"response_format": {"type": "json_object"}}, '{"a": [1, null]}', "[1]"),
        ({"response_format": JSON_SCHEMA}, PERSON, '{"name": "Ada"}'),
        ({"structured_outputs": {"json": SCHEMA}}, PERSON, "{}"),
        ({"structured_outputs": {"json": '{"type": "integer"}'}}, "12", "1.5"),
        ({"structured_outputs": {"regex": "[a-c]{2}"}}, "ab", "abc"),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "no", "maybe"),
        ({"structured_outputs": {"grammar": 'root ::= "a" root "b" | "c"'}}, "aacbb", "acbb"),
        ({"structured_outputs": {"json_object": True}}, "{}", "1"),
        ({"structured_outputs": {"regex": "a", **NEUTRAL}}, "a", "b"),
        ({"response_format": {"type": "structural_tag", **TAGGED}}, f"So: <p>{PERSON}</p>!", "<p>{}</p>"),
        ({"response_format": {"type": "structural_tag", "format": TAG}}, "<p>5</p>", "So: <p>5</p>"),
        ({"structured_outputs": {"structural_tag": TAGGED}}, f"<p>{PERSON}</p>", "<p>x"),
        ({"structured_outputs": {"structural_tag": json.dumps({"format": TAG})}}, "<p>5</p>", ""),
        ({"guided_json": SCHEMA}, PERSON, "{}"),
        ({"guided_regex": "a+"}, "aaa", ""),
        ({"guided_choice": ["é", "漢字"]}, "漢字", "字"),
        ({"guided_grammar": 'start: "x" "y"?'}, "xy", "y"),
    ],
)
@pytest.mark.parametrize(
    ("path", "body"), [("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)], ids=["text", "chat"]
)
def test_the_text_of_an_answer(
    frontend: Frontend, path: str, body: dict[str, Any], fields: dict[str, Any], good: str, bad: str
) -> None:
    post(frontend, path, {**body, **fields})
    assert accepted(frontend, good)
    assert not accepted(frontend, bad)


def test_other_endpoints(speak: Speak) -> None:
    frontend = speak(HERMES, PERSON)
    form = {"type": "json_schema", "name": "person", "schema": SCHEMA, "strict": True}
    for path, body in (
        ("/v1/responses", {"input": "hi", "text": {"format": form}}),
        (
            "/v1/messages",
            {**BODY, "max_tokens": 9, "output_format": {"type": "json_schema", "schema": SCHEMA}},
        ),
        ("/v1/messages", {**BODY, "max_tokens": 9, "output_config": {"format": {"schema": SCHEMA}}}),
    ):
        answer = post(frontend, path, body).json()
        assert accepted(frontend, PERSON)
        assert not accepted(frontend, "{}")
        assert "text" not in body or answer["text"] == body["text"]
    post(frontend, "/v1/responses", {"input": "hi", "text": {"format": {"type": "json_object"}}})
    assert accepted(frontend, "{}")


def test_equal_grammars_are_compiled_and_written_once(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    frontend = start_frontend(start_backend())
    for _ in range(3):
        post(frontend, "/v1/chat/completions", {**CHAT, "n": 2, "response_format": JSON_SCHEMA})
    rows = frontend.backend.accepted
    assert len({row.grammar for row in rows}) == 1
    assert len({int(row.descriptor["grammar_offset"]) for row in rows if row.descriptor is not None}) == 1
    post(frontend, "/v1/chat/completions", CHAT)
    assert not frontend.backend.accepted[-1].grammar
    metrics = frontend.client.get("/metrics").text
    assert re.search(r"blink:grammars_reused_total\{.*\} 2\.0", metrics)
    assert re.search(r"blink:grammar_compile_time_seconds_count\{.*\} 1\.0", metrics)


@pytest.mark.parametrize(
    ("fields", "param", "told"),
    [
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"uniqueItems": True}}}}, "response_format", "'uniqueItems' is not supported (at #/uniqueItems)"),
        ({"guided_json": {"properties": {"a": {"$ref": "#/x"}}}}, "guided_json", "(at #/properties/a/$ref)"),
        ({"guided_json": {"type": "str"}}, "guided_json", "(at #/type)"),
        ({"guided_json": {"allOf": [{"type": "null"}, {"type": "string"}]}}, "guided_json", "no answer can satisfy it"),
        ({"guided_json": {"type": "string", "minLength": 60_000}}, "guided_json", "cannot be enforced"),
        ({"response_format": {"type": "grammar"}}, "response_format.type", "must be one of 'json_object'"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "is missing"),
        ({"structured_outputs": {"structural_tag": {}}}, "structured_outputs.structural_tag", "it must have a 'format'"),
        ({"structured_outputs": {"structural_tag": "[]"}}, "structured_outputs.structural_tag", "must be an object"),
        ({"structured_outputs": {"structural_tag": "{"}}, "structured_outputs.structural_tag", "is not valid JSON"),
        ({"structured_outputs": {"json": '{"multipleOf": 1e999}'}}, "structured_outputs.json", "not finite, which JSON does not have (at #/multipleOf)"),
        ({"structured_outputs": {"json": '{"not": {"pattern": 5}}'}}, "structured_outputs.json", "'pattern' must be a string (at #/not/pattern)"),
        ({"structured_outputs": {"json": {}, "whitespace_pattern": ""}}, "structured_outputs.whitespace_pattern", "is not supported"),
        ({"structured_outputs": {"json": {}, "disable_any_whitespace": True}}, "structured_outputs.disable_any_whitespace", "is not supported"),
        ({"structured_outputs": {"jsn": {}}}, "structured_outputs", "unknown field `jsn`"),
        ({"response_format": {"type": "structural_tag", **TAGGED, "triggers": ["<q"]}}, "response_format", "begin with one trigger (at #/structures/0)"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "must not be empty"),
        ({"guided_regex": "(a"}, "guided_regex", "')' is missing in the regular expression '(a'"),
        ({"guided_regex": r"(a)\1"}, "guided_regex", r"\1 is not supported"),
        ({"guided_grammar": "root ::= a"}, "guided_grammar", "'a' is not defined (at line 1)"),
        ({"guided_grammar": "root ::= root | \"a\""}, "guided_grammar", "begins with itself (at the rule 'root')"),
        ({"guided_choice": ["\ud800"]}, "guided_choice", "lone surrogate"),
        ({"guided_choice": ["a"], "response_format": JSON_SCHEMA}, "guided_choice", "exclude each other"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs.choice", "exclude each other"),
        ({"response_format": JSON_SCHEMA, "min_tokens": 2}, "min_tokens", "does not go with"),
        ({"response_format": JSON_SCHEMA, "ignore_eos": True}, "ignore_eos", "does not go with"),
    ],
)  # fmt: skip
def test_what_is_refused(frontend: Frontend, fields: dict[str, Any], param: str, told: str) -> None:
    for _ in range(2):  # also from what is remembered
        answer = frontend.client.post(
            "/v1/chat/completions",
            content=json.dumps({**CHAT, **fields}),
            headers={"content-type": "application/json"},
        )
        error = error_of(answer, 400)
        assert error["param"] == param
        assert told in error["message"]
    assert not frontend.backend.accepted


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ('{"const":N}', "#/const"),
        ('{"const":{"a/b":[1,N]}}', "#/const/a~1b/1"),
        ('{"enum":[N],"multipleOf":2}', "#/enum/0"),
        ('{"enum":[1,{"a":N}],"minimum":0}', "#/enum/1/a"),
        ('{"multipleOf":N}', "#/multipleOf"),
        ('{"type":"number","minimum":N}', "#/minimum"),
        ('{"items":{"exclusiveMaximum":N}}', "#/items/exclusiveMaximum"),
        ('{"type":"string","maxLength":N}', "#/maxLength"),
        ('{"type":"integer","default":N}', "#/default"),
        ('{"not":{"const":N}}', "#/not/const"),
    ],
)
def test_numbers_that_json_does_not_have(frontend: Frontend, schema: str, place: str, number: str) -> None:
    """Python reads them, and would write them into answers."""
    written = schema.replace("N", number)
    for value in (written, json.dumps(written)):
        for field in ("guided_json", "structured_outputs"):
            given = value if field == "guided_json" else f'{{"json":{value}}}'
            body = f'{{"prompt":"x","max_tokens":4,"{field}":{given}}}'
            answer = frontend.client.post("/v1/completions", content=body, headers=IN_JSON)
            assert f"not finite, which JSON does not have (at {place})" in error_of(answer, 400)["message"]
    assert not frontend.backend.accepted


def test_numbers_that_json_does_not_have_in_a_strict_tool(speak: Speak) -> None:
    frontend = speak(HERMES, "x")
    parameters = {"type": "object", "properties": {"a": {"const": float("inf")}}}
    tool = {"type": "function", "function": {"name": "f", "strict": True, "parameters": parameters}}
    body = {**BODY, "tools": [tool], "tool_choice": "required"}
    answer = frontend.client.post("/v1/chat/completions", content=json.dumps(body), headers=IN_JSON)
    assert "(at #/properties/a/const of the tool 'f')" in error_of(answer, 400)["message"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 200 + "]" * 200, "nests 200 levels deep, and may nest 128"),
        (f'{{"enum":[{",".join(["{}"] * 70_000)}]}}', "objects, arrays and members of objects in all"),
        (f'{{"const":{"9" * 2000}}}', "has a number of 2000 characters"),
    ],
    ids=["depth", "parts", "digits"],
)
@pytest.mark.parametrize("kind", ["json", "structural_tag"])
def test_a_schema_in_a_text_is_counted_before_it_is_read(
    frontend: Frontend, kind: str, text: str, told: str
) -> None:
    body = {**COMPLETION, "structured_outputs": {kind: text}}
    error = error_of(frontend.client.post("/v1/completions", json=body), 400)
    assert error["param"] == f"structured_outputs.{kind}"
    assert told in error["message"]


def test_a_backend_that_takes_no_grammars(start_backend: StartBackend, start_frontend: StartFrontend) -> None:
    frontend = start_frontend(start_backend(max_grammar_words=0))
    error = error_of(frontend.client.post("/v1/completions", json={**COMPLETION, "guided_regex": "a"}), 400)
    assert (error["param"], error["code"]) == ("guided_regex", "unsupported_parameter")


def test_tags_behind_thoughts(speak: Speak) -> None:
    """In what a model thinks no trigger counts, and special tokens are marks in their own way."""
    frontend = speak(HERMES, "x")
    marked = {**TAGGED, "structures": [{"begin": "<p>", "schema": SCHEMA, "end": IM_END}]}
    post(frontend, "/v1/chat/completions", {**BODY, "response_format": {"type": "structural_tag", **marked}})
    for thoughts in ("", "<think>\nMaybe <p>?</think>\n\n"):
        assert accepted(frontend, f"{thoughts}So: <p>{PERSON}{IM_END}.")
        assert not accepted(frontend, f"{thoughts}So: <p>{{}}{IM_END}.")
    grammar = unpack(frontend.backend.accepted[-1].grammar)
    assert accepts(grammar, f"<p>{PERSON}".encode() + SPECIAL + IM_END.encode())
    assert not accepts(grammar, SPECIAL + IM_END.encode())


def test_thoughts_come_first(speak: Speak) -> None:
    opened, free = speak(DEEPSEEK, "x"), speak(HERMES, "x")
    for frontend in (opened, free):
        post(frontend, "/v1/chat/completions", {**BODY, "response_format": JSON_SCHEMA})
        for text in (f"Well... {{</think>\n\n{PERSON}", f"</think>{PERSON}"):
            assert accepted(frontend, text) == (frontend is opened)
        assert accepted(frontend, f"<think>\nWell, < </think>\n\n{PERSON}")
        assert not accepted(frontend, f"<think>\nWell</think>\n\n{PERSON}</think>")
        assert accepted(frontend, PERSON) == (frontend is free)
    body = {**BODY, "response_format": JSON_SCHEMA, "chat_template_kwargs": {"enable_thinking": False}}
    post(free, "/v1/chat/completions", body)
    assert accepted(free, PERSON)
    assert not accepted(free, f"<think></think>{PERSON}")


def test_special_tokens_come_only_where_they_are_asked_for(speak: Speak, frontend: Frontend) -> None:
    """A mark that is a special token is not the same as its text."""
    texts = SpecialTexts(frontend.service.tokenizer.special_texts)
    special = texts.answer_bytes("<|im_end|>")
    assert special == b"\xff<|im_end|>"
    assert texts.answer_bytes(TOOL_CALL) == TOOL_CALL.encode()
    post(frontend, "/v1/completions", {**COMPLETION, "guided_regex": r"[\s\S]*"})
    grammar = unpack(frontend.backend.accepted[-1].grammar)
    assert accepts(grammar, b"a <|im_end|>")
    assert not accepts(grammar, b"a " + special)
