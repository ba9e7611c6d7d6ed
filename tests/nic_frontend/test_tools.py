"""Tools in chats: what the prompt has, what the answer has, as a whole and in pieces."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from harness import CHAT, Frontend, Speak, error_of
from sse import events, finish_reasons, text_of
from templates import DEEPSEEK, HERMES, LLAMA, MISTRAL
from tiny_model import build_tokenizer

pytestmark = pytest.mark.usefixtures("kept_frontend")

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>'
TOOL = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object"}, "strict": False},
}
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def post(frontend: Frontend, **changes: Any) -> Any:
    answer = frontend.client.post("/v1/chat/completions", json={**BODY, **changes})
    assert answer.status_code == 200, answer.text
    return answer


def prompt(frontend: Frontend) -> str:
    tokens = frontend.backend.accepted[-1].prompt
    return str(build_tokenizer().decode(tokens, skip_special_tokens=False))


def joined(chunks: list[dict[str, Any]], index: int = 0) -> list[dict[str, Any]]:
    """The calls of a stream, put together as clients do it."""
    calls: list[dict[str, Any]] = []
    for chunk in chunks:
        for choice in chunk["choices"]:
            for piece in choice["delta"].get("tool_calls", ()) if choice["index"] == index else ():
                if piece["index"] == len(calls):
                    assert piece["type"] == "function"
                    calls.append({"id": piece["id"], "name": piece["function"]["name"], "arguments": ""})
                else:
                    assert set(piece) == {"index", "function"}
                    assert set(piece["function"]) == {"arguments"}
                calls[piece["index"]]["arguments"] += piece["function"]["arguments"]
    return calls


def test_a_call(speak: Speak) -> None:
    frontend = speak(HERMES, f"One moment.\n{CALL}")
    (choice,) = post(frontend).json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    message = choice["message"]
    assert (message["role"], message["content"], message["refusal"]) == ("assistant", "One moment.", None)
    (call,) = message["tool_calls"]
    assert call["id"].startswith("call_")
    assert call["type"] == "function"
    assert call["function"] == {"name": "weather", "arguments": '{"city": "Köln"}'}
    assert '"name": "weather"' in prompt(frontend)
    assert "strict" not in prompt(frontend)


@pytest.mark.parametrize("tokens_per_step", [1, 7, 500])
def test_a_streamed_call(speak: Speak, tokens_per_step: int) -> None:
    frontend = speak(HERMES, f"One moment.\n{CALL}\n{CALL}")
    frontend.backend.tokens_per_step = tokens_per_step
    chunks = events(post(frontend, stream=True, n=2, return_token_ids=True))
    for index in range(2):
        assert text_of(chunks, index) == "One moment."
        calls = joined(chunks, index)
        assert [call["name"] for call in calls] == ["weather"] * 2
        assert [json.loads(call["arguments"]) for call in calls] == [{"city": "Köln"}] * 2
        assert len({call["id"] for call in calls}) == 2
        ids = [
            token
            for c in chunks
            for ch in c["choices"]
            if ch["index"] == index
            for token in ch.get("token_ids", ())
        ]
        assert ids == [*build_tokenizer().encode(f"One moment.\n{CALL}\n{CALL}").ids, 1]
    assert finish_reasons(chunks) == {0: "tool_calls", 1: "tool_calls"}


def test_arguments_are_streamed_as_they_come(speak: Speak) -> None:
    chunks = events(post(speak(HERMES, CALL), stream=True))
    pieces = [chunk for chunk in chunks if chunk["choices"][0]["delta"].get("tool_calls")]
    assert len(pieces) > 3


def test_an_answer_without_a_call(speak: Speak) -> None:
    frontend = speak(HERMES, "It rains. <tool_call> no")
    (choice,) = post(frontend).json()["choices"]
    assert choice["message"]["content"] == "It rains. <tool_call> no"
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "stop"
    assert text_of(events(post(frontend, stream=True))) == "It rains. <tool_call> no"


def test_a_call_that_is_cut_off(speak: Speak) -> None:
    n_tokens = len(build_tokenizer().encode(CALL).ids) - 18
    (choice,) = post(speak(HERMES, CALL), max_tokens=n_tokens).json()["choices"]
    assert choice["finish_reason"] == "length"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["arguments"].startswith('{"city": "K')
    assert "}" not in call["function"]["arguments"]


def reasons(frontend: Frontend, **changes: Any) -> set[tuple[str, str | None]]:
    """Why a whole answer and a streamed one ended."""
    whole = post(frontend, **changes).json()
    streamed = events(post(frontend, stream=True, **changes))[-1]
    return {
        (answer["choices"][0]["finish_reason"], answer["choices"][0]["stop_reason"])
        for answer in (whole, streamed)
    }


@pytest.mark.parametrize(
    ("template", "text"), [(HERMES, CALL), (MISTRAL, '[TOOL_CALLS]weather[ARGS]{"city": "Köln"}')]
)
def test_a_stop_string_in_a_call_leaves_no_finished_call(speak: Speak, template: str, text: str) -> None:
    frontend = speak(template, text)
    assert reasons(frontend, stop=["ln"]) == {("stop", "ln")}
    assert reasons(frontend, stop=["x"]) == {("tool_calls", None)}


def test_a_stop_string_behind_the_arguments(speak: Speak) -> None:
    """Some clients name the mark that ends a call."""
    frontend = speak(HERMES, f"{CALL}{CALL}")
    assert reasons(frontend, stop=["</tool_call>"]) == {("tool_calls", "</tool_call>")}
    assert reasons(frontend, stop=["ln"], parallel_tool_calls=False) == {("stop", "ln")}


@pytest.mark.parametrize("stream", [False, True])
def test_only_one_call(speak: Speak, stream: bool) -> None:
    frontend = speak(HERMES, f"{CALL}{CALL}" + "x" * 2000)
    changes = {"stream_options": {"include_usage": True}} if stream else {}
    answer = post(frontend, parallel_tool_calls=False, stream=stream, **changes)
    if stream:
        chunks = events(answer)
        assert len(joined(chunks)) == 1
        assert finish_reasons(chunks) == {0: "tool_calls"}
        usage = chunks[-1]["usage"]
    else:
        (choice,) = answer.json()["choices"]
        assert len(choice["message"]["tool_calls"]) == 1
        assert choice["finish_reason"] == "tool_calls"
        usage = answer.json()["usage"]
    one = len(build_tokenizer().encode(CALL).ids)
    assert one <= usage["completion_tokens"] <= one + 2  # a token may reach into what comes behind


@pytest.mark.parametrize("tokens_per_step", [1, 500])
def test_only_one_call_whose_last_token_is_the_last(speak: Speak, tokens_per_step: int) -> None:
    frontend = speak(HERMES, CALL)
    frontend.backend.tokens_per_step = tokens_per_step
    n_tokens = len(build_tokenizer().encode(CALL).ids)
    told = reasons(frontend, max_tokens=n_tokens, parallel_tool_calls=False)
    assert told == {("tool_calls", None)}
    usage = post(frontend, max_tokens=n_tokens, parallel_tool_calls=False).json()["usage"]
    assert usage["completion_tokens"] == n_tokens


def test_names_that_models_cannot_write(speak: Speak) -> None:
    tool = {"type": "function", "function": {"name": "crm/look up"}}
    answer = speak(HERMES, "").client.post("/v1/chat/completions", json={**BODY, "tools": [TOOL, tool]})
    error = error_of(answer, 400)
    assert error["param"] == "tools[1].function.name"
    assert error["message"].endswith("must match ^[a-zA-Z0-9_.-]{1,128}$, it is 'crm/look up'")


def test_no_tools_for_a_choice_of_none(speak: Speak) -> None:
    frontend = speak(HERMES, CALL)
    (choice,) = post(frontend, tool_choice="none").json()["choices"]
    assert choice["message"]["content"] == CALL
    assert "weather" not in prompt(frontend)


@pytest.mark.parametrize("changes", [{"tools": []}, {"tool_choice": named("other")}])
def test_a_call_of_a_tool_that_is_not_there(speak: Speak, changes: dict[str, Any]) -> None:
    body = {**BODY, "tool_choice": "required", **changes}
    answer = speak(HERMES, CALL).client.post("/v1/chat/completions", json=body)
    assert error_of(answer, 400)["param"] == "tool_choice"


def test_a_history_with_calls(speak: Speak) -> None:
    frontend = speak(HERMES, "It rains.")
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city":"Köln"}'},
    }
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": "call_2"}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
        {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "sun"}]},
    ]
    assert post(frontend, messages=messages).json()["choices"][0]["message"]["content"] == "It rains."
    shown = prompt(frontend)
    assert shown.count('{"name": "weather", "arguments": {"city": "Köln"}}') == 2
    assert shown.index("rain") < shown.index("sun")


def test_a_history_with_functions(speak: Speak) -> None:
    """OpenAI's older form of calls and results is shown as that of tools."""
    frontend = speak(HERMES, "It rains.")
    call = {"name": "weather", "arguments": '{"city":"Köln"}'}
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "function_call": call, "tool_calls": None},
        {"role": "function", "name": "weather", "content": "rain"},
        {"role": "assistant", "content": "It rains.", "function_call": None},
        {"role": "user", "content": "And now?"},
    ]
    post(frontend, messages=messages)
    older = prompt(frontend)
    messages[1] = {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": call}]}
    messages[2] = {"role": "tool", "tool_call_id": "c", "content": "rain"}
    post(frontend, messages=messages)
    assert older == prompt(frontend)
    assert '{"name": "weather", "arguments": {"city": "Köln"}}' in older


def test_functions_whose_ids_a_template_compares(speak: Speak) -> None:
    frontend = speak(MISTRAL, "It rains.")
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "rain"},
    ]
    post(frontend, messages=messages)
    (called,) = re.findall(r'"id": "(\w{9})"', prompt(frontend))
    assert f"[TOOL_RESULTS]{called} rain" in prompt(frontend)


@pytest.mark.parametrize("template", [HERMES, DEEPSEEK])
@pytest.mark.parametrize("arguments", ["{", '{"city": "K', "[1]", '"Köln"', "[" * 3000])
def test_arguments_that_are_no_object_are_shown(speak: Speak, template: str, arguments: str) -> None:
    """Models write such calls, and clients send them back for as long as the conversation lasts."""
    frontend = speak(template, "")
    call = {"name": "f", "arguments": arguments}
    for calling in (
        {"tool_calls": [{"id": "c", "type": "function", "function": call}]},
        {"function_call": call},
    ):
        messages = [*CHAT["messages"], {"role": "assistant", **calling}]
        answer = frontend.client.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 1})
        assert answer.status_code == 200, answer.text[:200]
        assert json.dumps({"INVALID_JSON": arguments}, ensure_ascii=False) in prompt(frontend)


@pytest.mark.parametrize("arguments", ["", "{}", "null"])
def test_no_arguments(speak: Speak, arguments: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    frontend = speak(HERMES, "")
    post(frontend, messages=[CHAT["messages"][0], {"role": "assistant", "tool_calls": [call]}])
    assert '{"name": "f", "arguments": {}}' in prompt(frontend)


def test_templates_and_servers_without_tools(speak: Speak, frontend: Frontend) -> None:
    for server in (frontend, speak(DEEPSEEK, ""), speak(HERMES, "", tool_call_parser="none")):
        answer = server.client.post("/v1/chat/completions", json=BODY)
        error = error_of(answer, 400)
        assert (error["param"], error["code"]) == ("tools", "unsupported_parameter")


def test_special_tokens_that_mark_calls(speak: Speak) -> None:
    """They are not shown otherwise."""
    frontend = speak(LLAMA, '{"name": "weather", "parameters": {}}<|im_end|>')
    (call,) = post(frontend).json()["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": "{}"}
    assert "im_end" not in frontend.client.post("/v1/chat/completions", json=CHAT).text


def test_ids_of_mistral(speak: Speak) -> None:
    frontend = speak(MISTRAL, '[TOOL_CALLS][{"name": "weather", "arguments": {}}]')
    (call,) = post(frontend).json()["choices"][0]["message"]["tool_calls"]
    assert len(call["id"]) == 9
