"""/v1/messages: Anthropic's objects and events, calls, thinking, errors, and the count of tokens."""

# ruff: noqa: E501 (bodies are long)

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from harness import Frontend, Speak, StartBackend, StartFrontend
from templates import HERMES, LLAMA
from tiny_model import build_tokenizer
from typed_sse import typed_events

from nic_frontend.api.schema import answers
from nic_frontend.api.schema.checked import checked

pytestmark = pytest.mark.usefixtures("kept_frontend")

CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Köln"}}</tool_call>'
TOOL = {"name": "weather", "description": "of a city", "input_schema": {"type": "object"}}
EVERYTHING = f"<think>Hm.</think>One moment.{CALL}"
BODY: dict[str, Any] = {"max_tokens": 200, "messages": [{"role": "user", "content": "hi"}]}


def post(frontend: Frontend, path: str = "/v1/messages", **changes: Any) -> Any:
    answer = frontend.client.post(path, json={**BODY, **changes})
    assert answer.status_code == 200, answer.text
    return answer


def prompt(frontend: Frontend) -> str:
    return str(build_tokenizer().decode(frontend.backend.accepted[-1].prompt, skip_special_tokens=False))


def refusal(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert (set(body), body["type"], set(body["error"])) == ({"type", "error"}, "error", {"type", "message"})
    error: dict[str, Any] = body["error"]
    return error


def test_whole(speak: Speak) -> None:
    frontend = speak(HERMES, EVERYTHING)
    found = post(frontend, tools=[TOOL], system="Be brief.").json()
    checked(found, answers.Message)
    thought, said, called = found["content"]
    assert (thought["type"], thought["thinking"]) == ("thinking", "Hm.")
    assert thought["signature"]
    assert said == {"type": "text", "text": "One moment."}
    assert (called["type"], called["name"], called["input"]) == ("tool_use", "weather", {"city": "Köln"})
    assert (found["stop_reason"], found["stop_sequence"]) == ("tool_use", None)
    assert found["usage"]["output_tokens"] > 10
    assert "Be brief." in prompt(frontend)
    assert '"description": "of a city"' in prompt(frontend)


@pytest.mark.parametrize("tokens_per_step", [1, 1000])
def test_events(speak: Speak, tokens_per_step: int) -> None:
    frontend = speak(HERMES, EVERYTHING)
    frontend.backend.tokens_per_step = tokens_per_step
    start, *middle, delta, stop = typed_events(post(frontend, tools=[TOOL], stream=True))
    assert (start["type"], delta["type"], stop["type"]) == ("message_start", "message_delta", "message_stop")
    assert start["message"]["content"] == []
    assert start["message"]["usage"]["input_tokens"] == delta["usage"]["input_tokens"]
    assert delta["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    blocks: list[dict[str, Any]] = []
    for event in middle:
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "pieces": "", "open": True})
        block = blocks[event["index"]]
        assert block["open"]
        assert event["index"] == len(blocks) - 1
        block["open"] = event["type"] != "content_block_stop"
        if event["type"] == "content_block_delta":
            assert not block.get("signature")  # it comes last
            if event["delta"]["type"] == "signature_delta":
                block["signature"] = event["delta"]["signature"]
            else:
                block["pieces"] += next(value for name, value in event["delta"].items() if name != "type")
    assert not any(block["open"] for block in blocks)
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use"]
    assert [block["pieces"] for block in blocks[:2]] == ["Hm.", "One moment."]
    assert blocks[0]["signature"]
    assert json.loads(blocks[2]["pieces"]) == {"city": "Köln"}
    assert blocks[2]["input"] == {}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("changes", "reason", "sequence"),
    [
        ({}, "end_turn", None),
        ({"max_tokens": 2}, "max_tokens", None),
        ({"stop_sequences": ["rains", "x"]}, "stop_sequence", "rains"),
    ],
)
def test_why_it_stopped(
    speak: Speak, stream: bool, changes: dict[str, Any], reason: str, sequence: str | None
) -> None:
    answer = post(speak(HERMES, "It rains now."), stream=stream, **changes)
    found = typed_events(answer)[-2]["delta"] if stream else answer.json()
    assert (found["stop_reason"], found["stop_sequence"]) == (reason, sequence)


def test_a_call_that_a_stop_sequence_cuts_is_not_to_be_run(speak: Speak) -> None:
    """Its input would be empty."""
    found = post(speak(HERMES, CALL), tools=[TOOL], stop_sequences=["ln"]).json()
    assert (found["stop_reason"], found["stop_sequence"]) == ("stop_sequence", "ln")


def test_more_tokens_than_fit(frontend: Frontend) -> None:
    """Clients have to ask for some number, and do not know the context."""
    found = post(frontend, max_tokens=100_000).json()
    assert found["stop_reason"] == "model_context_window_exceeded"
    assert found["usage"]["input_tokens"] + found["usage"]["output_tokens"] == 512


def test_thinking(speak: Speak) -> None:
    frontend = speak(HERMES, "It rains.")
    post(frontend, thinking={"type": "disabled"})
    assert prompt(frontend).endswith("<think>\n\n</think>\n\n")
    post(frontend, chat_template_kwargs={"enable_thinking": False})
    assert prompt(frontend).endswith("<think>\n\n</think>\n\n")
    answer = post(frontend, thinking={"type": "enabled", "budget_tokens": 1024})
    assert not prompt(frontend).endswith("</think>\n\n")
    assert "x-blink-warning" not in answer.headers


def test_thinking_of_models_that_do_not(speak: Speak) -> None:
    answer = post(speak(LLAMA, "It rains."), thinking={"type": "enabled", "budget_tokens": 1024})
    assert "'thinking' means nothing" in answer.headers["x-blink-warning"]


def test_effort(speak: Speak) -> None:
    effort: dict[str, Any] = {"output_config": {"effort": "max"}}
    known = speak(
        LLAMA.replace("<|im_start|>assistant\n{% endif %}", "{{ reasoning_effort }}{% endif %}"), "x"
    )
    assert "x-blink-warning" not in post(known, **effort).headers
    assert prompt(known).endswith("max")
    told = post(known, **effort, thinking={"type": "adaptive"}).headers["x-blink-warning"]
    assert prompt(known).endswith("max")
    assert told == "'thinking' means nothing to this model"
    switch = speak(HERMES, "x")
    told = post(switch, **effort, thinking={"type": "disabled"}).headers["x-blink-warning"]
    assert prompt(switch).endswith("</think>\n\n")
    assert "no degrees of 'output_config.effort'" in told
    told = post(speak(LLAMA, "x"), **effort).headers["x-blink-warning"]
    assert told == "'output_config.effort' means nothing to this model"


def test_count_of_tokens(speak: Speak) -> None:
    frontend = speak(HERMES, "x")
    body = {"system": "Be brief.", "tools": [TOOL], "messages": BODY["messages"]}
    counted = frontend.client.post("/v1/messages/count_tokens", json=body).json()
    assert counted == {"input_tokens": post(frontend, **body).json()["usage"]["input_tokens"]}


def test_count_of_a_whole_conversation(speak: Speak) -> None:
    """Clients show how full the context is after an answer, too."""
    frontend = speak(HERMES, "x")
    answered = [*BODY["messages"], {"role": "assistant", "content": "Hello."}]
    counts = [
        post(frontend, "/v1/messages/count_tokens", messages=messages).json()["input_tokens"]
        for messages in (answered, [*answered, *BODY["messages"]])
    ]
    shown = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n"
    assert counts[0] == len(build_tokenizer().encode(shown, add_special_tokens=False).ids) < counts[1]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"max_tokens": None}, "'max_tokens'"),
        ({"messages": []}, "'messages' must not be empty"),
        ({"messages": [{"role": "developer", "content": "x"}]}, "'messages[0].role' must be one of"),
        ({"messages": [{"role": "system", "content": [{"type": "tool_result", "tool_use_id": "x"}]}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "'messages[0].content[0].type'"),
        ({"messages": [*BODY["messages"], {"role": "assistant", "content": "Well, "}]}, "'messages[1]'"),
        ({"tool_choice": {"type": "any"}}, "'tool_choice'"),
        ({"tool_choice": {"type": "tool", "name": "g"}, "tools": [TOOL]}, "'tool_choice' names 'g'"),
        ({"tool_choice": {"type": "tool"}, "tools": [TOOL]}, "'tool_choice.name' is missing"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "x", "name": "f", "input": {}}]}]}, "messages[0].content"),
        ({"mcp_servers": [{}]}, "'mcp_servers'"),
        ({"output_config": {"effort": "most"}}, "'output_config.effort' must be one of 'high'"),
        ({"stop_sequences": ["x" * 2049]}, "'stop_sequences' takes up to 2048"),
        ({"chat_template_kwargs": {"messages": []}}, "'messages'"),
        ({"stop": "x", "frequency_penalty": 1}, "'frequency_penalty', 'stop' are not supported"),
    ],
)  # fmt: skip
def test_what_is_refused(speak: Speak, changes: dict[str, Any], told: str) -> None:
    error = refusal(speak(HERMES, "").client.post("/v1/messages", json={**BODY, **changes}), 400)
    assert error["type"] == "invalid_request_error"
    assert told in error["message"]


def test_a_prompt_that_is_too_long(frontend: Frontend) -> None:
    """Clients recognize it by these words, and shorten the conversation."""
    messages = [{"role": "user", "content": "a b c d e f g h " * 100}]
    answer = frontend.client.post("/v1/messages", json={**BODY, "messages": messages})
    told = refusal(answer, 400)["message"]
    found = re.match(r"prompt is too long: (\d+) tokens > 511 maximum", told)
    assert found is not None, told
    assert int(found[1]) > 511
    assert "maximum context length is 512" in told


def test_errors_and_keys(start_backend: StartBackend, start_frontend: StartFrontend) -> None:
    frontend = start_frontend(start_backend(), api_key="secret")
    post = frontend.client.post
    assert refusal(post("/v1/messages", json=BODY), 401)["type"] == "authentication_error"
    wrong = {"x-api-key": "wrong"}
    assert refusal(post("/v1/messages", json=BODY, headers=wrong), 401)["type"] == "authentication_error"
    right = {"x-api-key": "secret"}
    assert post("/v1/messages", json=BODY, headers=right).status_code == 200
    assert post("/v1/messages", json=BODY, headers={"authorization": "Bearer secret"}).status_code == 200
    other = {**BODY, "model": "claude"}
    assert refusal(post("/v1/messages", json=other, headers=right), 404)["type"] == "not_found_error"
    assert refusal(frontend.client.get("/v1/messages", headers=right), 405)["type"] == "invalid_request_error"
