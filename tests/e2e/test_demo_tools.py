"""Tools with the demo model: calls that a grammar forces, an agent's loop, and answers beside tools."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from demo_client import Reply, ask, chat, items, right
from demo_model.evaluate import chat_text
from limits import WAIT_S
from openai import OpenAI
from serve_process import ServeProcess

SKIES = {"Paris": "sunny and warm", "Rome": "rain 12 degrees"}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": name, "description": "d " * 99, "parameters": parameters}
    return {"type": "function", "function": function}


WEATHER = tool("get_weather", city={"enum": list(SKIES)})
ADD = tool("add", a={"type": "integer"}, b={"type": "integer"})
QUESTION = {"role": "user", "content": "What is the weather in Paris?"}


@pytest.fixture
def client(server: ServeProcess) -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=WAIT_S)


def prompt_of(server: ServeProcess, messages: list[dict[str, Any]], **fields: Any) -> str:
    """What the chat template makes of a conversation."""
    body = {"model": "demo", "messages": messages, **fields}
    answer = httpx.post(f"{server.url}/v1/chat/completions/render", json=body, timeout=WAIT_S)
    ids = answer.raise_for_status().json()
    text = {"model": "demo", "tokens": ids["token_ids"]}
    answer = httpx.post(f"{server.url}/detokenize", json=text, timeout=WAIT_S)
    return str(answer.raise_for_status().json()["prompt"])


def test_an_agent_calls_a_tool_and_answers_with_its_result(client: OpenAI) -> None:
    history: list[Any] = [QUESTION]
    wanted: dict[str, Any] = {"model": "demo", "tools": [ADD, WEATHER], "temperature": 0}
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        answer = client.chat.completions.create(messages=history, tool_choice=choice, **wanted).choices[0]
        assert answer.finish_reason == "tool_calls"
        (call,) = answer.message.tool_calls or ()
        assert call.type == "function"
        arguments = json.loads(call.function.arguments)
        assert call.function.name == "get_weather" or set(arguments) == {"a", "b"}
    sky = SKIES[arguments["city"]]
    history += [answer.message, {"role": "tool", "tool_call_id": call.id, "content": sky}]
    final = client.chat.completions.create(messages=history, **wanted).choices[0]
    assert (final.message.content, final.finish_reason) == (sky, "stop")


def test_prompts_with_tools(server: ServeProcess) -> None:
    calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
        for n, arguments in enumerate(('{"city": "Paris"}', '{"city": "Rome"}'))
    ]
    messages: list[dict[str, Any]] = [
        QUESTION,
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_0", "content": "sunny"},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]
    assert prompt_of(server, messages, tools=[WEATHER, ADD]) == (
        "<|bos|><|system|>get_weather(city); add(a, b)<|end|>"
        "<|user|>What is the weather in Paris?<|end|>"
        '<|assistant|><tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call><|end|>'
        '<|user|>Repeat the text "sunny rain".<|end|><|assistant|>'
    )


def test_prompts_without_tools_are_those_of_the_training(server: ServeProcess) -> None:
    for item in items("memory", 3):
        messages = [{"role": "system", "content": "Be exact."}, *item.messages]
        assert prompt_of(server, messages) == chat_text(messages)


def test_it_answers_as_well_beside_tools(server: ServeProcess) -> None:
    chosen = [item for task in ("add", "sort_words", "fact") for item in items(task, 4)]
    replies: list[Reply] = ask(server.url, [chat(item, tools=[WEATHER, ADD]) for item in chosen])
    assert all(right(chosen, replies))
