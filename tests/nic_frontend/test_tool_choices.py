"""Calls that a request asks for or allows: the grammar that holds answers to them, and the tools that are shown."""

# ruff: noqa: E501 (requests are long)

from __future__ import annotations

from typing import Any

import pytest
from harness import Frontend, Speak, error_of
from templates import HERMES, LLAMA, MISTRAL
from tiny_model import build_tokenizer

from ringbuffer.grammar import accepts, unpack

TOOL = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
OTHER = {"name": "time"}
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}


def accepted(frontend: Frontend, text: str) -> bool:
    """Whether the last request's answer might have been this text."""
    return accepts(unpack(frontend.backend.accepted[-1].grammar), text.encode())


def prompt(frontend: Frontend) -> str:
    return str(build_tokenizer().decode(frontend.backend.accepted[-1].prompt, skip_special_tokens=False))


def post(frontend: Frontend, path: str, body: dict[str, Any]) -> Any:
    answer = frontend.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer


def forced(choice: Any, *tools: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        **BODY, **more, "tool_choice": choice, "tools": [{"type": "function", "function": tool} for tool in tools]
    }  # fmt: skip


WAYS = {
    "hermes": (HERMES, '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>', "\n"),
    "llama3_json": (LLAMA, '{"name": "weather", "parameters": {"city": "Rome"}}', "; "),
    "mistral": (MISTRAL, '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome"}}]', ""),
    "phi4_mini": (
        HERMES,
        '<|tool_call|>[{"name": "weather", "arguments": {"city": "Rome"}}]<|/tool_call|>',
        "",
    ),
    "pythonic": (HERMES, '[weather(city="Rome")]', ""),
}


@pytest.mark.parametrize("parser", WAYS)
def test_a_forced_call(speak: Speak, parser: str) -> None:
    template, call, between = WAYS[parser]
    frontend = speak(template, call, tool_call_parser=parser)
    body = forced("required", TOOL, OTHER)
    message = post(frontend, "/v1/chat/completions", body).json()["choices"][0]["message"]
    assert message["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city": "Rome"}'}
    assert accepted(frontend, call)
    assert not between or accepted(frontend, call + between + call)
    for wrong in ("", "Hello", call.replace("weather", "whether"), call.replace("city", "town")):
        assert not accepted(frontend, wrong), wrong
    post(frontend, "/v1/chat/completions", {**body, "parallel_tool_calls": False})
    assert accepted(frontend, call)
    assert not between or not accepted(frontend, call + between + call)
    named = {"type": "function", "function": {"name": "time"}}
    post(frontend, "/v1/chat/completions", forced(named, TOOL, OTHER))
    assert not accepted(frontend, call)


def test_parameters_have_any_names(speak: Speak) -> None:
    """F22: also in calls that look like Python, where some cannot be written as Python's."""
    schema = {"type": "object", "properties": {name: {} for name in ("from", "user-id", "two words")}}
    call = '[f(from="Rome\\n", user-id=1e999, **{"two words": null})]'
    frontend = speak(HERMES, call, tool_call_parser="pythonic")
    body = forced("required", {"name": "f", "parameters": schema, "strict": True})
    message = post(frontend, "/v1/chat/completions", body).json()["choices"][0]["message"]
    arguments = '{"from": "Rome\\n", "user-id": 1e999, "two words": null}'
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": arguments}
    assert accepted(frontend, call)


def test_forced_calls_of_other_endpoints(speak: Speak) -> None:
    call = WAYS["hermes"][1]
    frontend = speak(HERMES, call)
    tool = {"name": "weather", "input_schema": TOOL["parameters"]}
    named = {"type": "function", "name": "weather"}
    for path, body in (
        ("/v1/responses", {"input": "hi", "tools": [{"type": "function", **TOOL}], "tool_choice": "required"}),
        ("/v1/responses", {"input": "hi", "tools": [{"type": "function", **TOOL}], "tool_choice": named}),
        ("/v1/messages", {**BODY, "max_tokens": 99, "tools": [tool], "tool_choice": {"type": "any"}}),
        ("/v1/messages", {**BODY, "max_tokens": 99, "tools": [tool], "tool_choice": {"type": "tool", "name": "weather"}}),
    ):  # fmt: skip
        post(frontend, path, body)
        assert accepted(frontend, call)
        assert not accepted(frontend, "Hello")


def test_a_choice_without_a_type_names_a_function(speak: Speak) -> None:
    call = WAYS["hermes"][1]
    frontend = speak(HERMES, call)
    tools = [{"type": "function", **TOOL}, {"type": "function", **OTHER}]
    for path, body, where in (
        ("/v1/chat/completions", forced({"function": {"name": "weather"}}, TOOL, OTHER), "tool_choice.function"),
        ("/v1/responses", {"input": "hi", "tools": tools, "tool_choice": {"name": "weather"}}, "tool_choice.name"),
    ):  # fmt: skip
        answer = post(frontend, path, body).json()
        assert answer.get("tool_choice") in (
            None,
            {"type": "function", "name": "weather"},
        )  # as clients know it
        assert accepted(frontend, call)
        assert not accepted(frontend, call.replace("weather", "time"))
        error = error_of(frontend.client.post(path, json={**body, "tool_choice": {}}), 400)
        assert (error["param"], error["code"]) == (where, "missing_required_parameter")


def test_of_a_long_name_the_refusal_says_the_beginning(speak: Speak) -> None:
    """To write such a name out took the event loop a tenth of a second, and twice its size in the answer."""
    frontend, long = speak(HERMES, "{}"), "\u2028" * 100_000
    error = error_of(frontend.client.post("/v1/chat/completions", json=forced(function(long), TOOL)), 400)
    assert error["param"] == "tool_choice"
    assert len(error["message"]) < 1000


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize("endpoint", ["chat", "responses"])
def test_allowed_tools(speak: Speak, endpoint: str) -> None:
    """pydantic-ai and others choose some of the tools so. One must be called, or may be."""
    call = WAYS["hermes"][1]
    frontend = speak(HERMES, call)

    def ask(mode: str, *names: str) -> Any:
        if endpoint == "chat":
            allowed = {"mode": mode, "tools": [function(name) for name in names]}
            body = forced({"type": "allowed_tools", "allowed_tools": allowed}, TOOL, OTHER, {"name": "news"})
            return frontend.client.post("/v1/chat/completions", json=body)
        tools = [{"type": "function", **tool} for tool in (TOOL, OTHER, {"name": "news"})]
        shown = [{"type": "web_search"}, *({"type": "function", "name": name} for name in names)]
        choice = {"type": "allowed_tools", "mode": mode, "tools": shown}
        return frontend.client.post(
            "/v1/responses", json={"input": "hi", "tools": tools, "tool_choice": choice}
        )

    assert ask("required", "weather", "time").status_code == 200
    assert accepted(frontend, call)
    assert accepted(frontend, f"{call}\n{call.replace('weather', 'time')}")
    assert not accepted(frontend, call.replace("weather", "news"))
    assert not accepted(frontend, "Hello")
    assert all(f'"{name}"' in prompt(frontend) for name in ("weather", "time", "news"))
    assert ask("auto", "weather").status_code == 200
    assert '"weather"' in prompt(frontend)
    assert '"news"' not in prompt(frontend)
    assert ask("auto").status_code == 200
    assert "<tool_call>" not in prompt(frontend)
    for mode, names in (("required", ()), ("auto", ("other",))):
        assert error_of(ask(mode, *names), 400)["param"] == "tool_choice"


def test_strict_functions(speak: Speak) -> None:
    """The text may be anything; a call is to a tool, with arguments as it has them if it is strict."""
    frontend = speak(HERMES, "Hello")
    answer = post(frontend, "/v1/chat/completions", forced("auto", {**TOOL, "strict": True}, OTHER))
    assert "x-blink-warning" not in answer.headers
    call = WAYS["hermes"][1]
    other = call.replace("weather", "time")
    for text in ("", "Hello <tool_cal", call, f"One moment.\n{call}", f"{call}\n{call}", other, "{[\n"):
        assert accepted(frontend, text), text
    for text in (call[:-5], call.replace("city", "town"), call.replace("weather", "x"), f"{call}, and"):
        assert not accepted(frontend, text), text
    lenient = post(frontend, "/v1/chat/completions", forced("auto", TOOL))
    assert "x-blink-warning" not in lenient.headers
    assert not frontend.backend.accepted[-1].grammar


def test_strictness_that_is_not_enforced(speak: Speak) -> None:
    """Where nothing stands in front of a call, any text may be one."""
    frontend = speak(LLAMA, "Hello")
    answer = post(frontend, "/v1/chat/completions", forced("auto", {**TOOL, "strict": True}))
    assert answer.headers["x-blink-warning"] == "'strict' is not enforced (tools weather)"


def test_a_form_of_text_or_calls(speak: Speak) -> None:
    frontend = speak(HERMES, "{}")
    post(frontend, "/v1/chat/completions", forced("auto", TOOL, response_format={"type": "json_object"}))
    assert accepted(frontend, '{"a": 1}')
    assert accepted(frontend, WAYS["hermes"][1])
    assert not accepted(frontend, "Hello")


def test_parameters_that_cannot_be_enforced(speak: Speak) -> None:
    """A strict tool's are refused; of others any object is taken."""
    tool = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"uniqueItems": True}}}}
    frontend = speak(HERMES, "Hello")
    error = error_of(
        frontend.client.post("/v1/chat/completions", json=forced("required", {**tool, "strict": True})), 400
    )
    assert error["param"] == "tool_choice"
    assert (
        "the parameters of the tool 'f': 'uniqueItems' is not supported (at #/properties/a"
        in error["message"]
    )
    post(frontend, "/v1/chat/completions", forced("required", tool))
    assert accepted(frontend, '<tool_call>{"name": "f", "arguments": {"b": 1}}</tool_call>')


@pytest.mark.slow
@pytest.mark.parametrize("parser", ["hermes", "pythonic"])
def test_parameters_that_are_too_large(speak: Speak, parser: str) -> None:
    """That shows only when the grammar is compiled: then no tool's are held to, unless it is strict."""
    frontend = speak(HERMES, "Hello", tool_call_parser=parser)
    large = {"type": "string", "pattern": "^([a-z]{1,40}[0-9]{1,40}){1,2000}$"}
    other = {"name": "f", "parameters": {"type": "object", "properties": {"a": large}}}
    call = WAYS[parser][1]
    for strict in (False, True):
        post(frontend, "/v1/chat/completions", forced("required", {**TOOL, "strict": strict}, other))
        assert accepted(frontend, call)
        assert accepted(frontend, call.replace("weather", "f"))
        assert accepted(frontend, call.replace("city", "town")) != strict
        assert not accepted(frontend, call.replace("weather", "whether"))
    larger = {"type": "string", "enum": [f"number {i}" for i in range(100_000)]}
    another = {"name": "f", "parameters": {"type": "object", "properties": {"a": larger}}}
    post(frontend, "/v1/chat/completions", {**forced("required", TOOL, another), "truncate_prompt_tokens": 9})
    assert accepted(frontend, call.replace("weather", "f").replace("city", "town"))
    for tool, told in (
        (other, "more states than are allowed"),
        (another, "has more than 1048576 characters"),
    ):
        body = forced("required", {**tool, "strict": True})
        error = error_of(frontend.client.post("/v1/chat/completions", json=body), 400)
        assert error["param"] == "tool_choice"
        assert told in error["message"]
