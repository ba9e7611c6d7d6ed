"""The official client, unchanged: what it parses, and the exceptions it raises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from harness import Frontend, Speak, StartBackend, StartFrontend
from limits import WAIT_S
from mock_backend import MockBackend
from templates import HERMES

from ringbuffer.abi import Phase


@pytest.fixture
def client(frontend: Frontend) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{frontend.url}/v1", api_key="none", max_retries=0, timeout=WAIT_S) as made:
        yield made


def test_completion(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt="hello", max_tokens=4, temperature=0)
    assert answer.choices[0].text == '!"#$'
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 4


def test_completion_stream(client: openai.OpenAI) -> None:
    stream = client.completions.create(
        model="tiny", prompt="hello", max_tokens=4, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == '!"#$'
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 4


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "hi"}],
        max_completion_tokens=3,
        seed=1,
        stop=["#"],
    )
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == '!"'
    assert answer.choices[0].finish_reason == "stop"


def test_chat_stream(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "hi"}]
    with client.chat.completions.create(
        model="tiny", messages=messages, max_tokens=3, n=2, stream=True
    ) as stream:  # type: ignore[call-overload]
        chunks = list(stream)
    for index in range(2):
        mine = [c.choices[0] for c in chunks if c.choices[0].index == index]
        assert mine[0].delta.role == "assistant"
        assert "".join(choice.delta.content or "" for choice in mine) == '!"#'
        assert mine[-1].finish_reason == "length"


def test_tools(speak: Speak) -> None:
    """Whole, streamed, and with the client's own helpers, which put the pieces together."""
    text = 'Well.<tool_call>{"name": "weather", "arguments": {"city": "Köln"}}</tool_call>'
    client = openai.OpenAI(base_url=f"{speak(HERMES, text).url}/v1", api_key="none", timeout=WAIT_S)
    tool: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    messages: Any = [{"role": "user", "content": "hi"}]
    whole = client.chat.completions.create(model="tiny", messages=messages, tools=[tool])
    with client.chat.completions.stream(model="tiny", messages=messages, tools=[tool]) as stream:
        kinds = {event.type for event in stream}
        streamed = stream.get_final_completion()
    assert {"content.delta", "tool_calls.function.arguments.delta"} <= kinds
    for answer in (whole, streamed):
        assert answer.choices[0].finish_reason == "tool_calls"
        message = answer.choices[0].message
        assert message.content == "Well."
        assert message.tool_calls is not None
        assert [call.type for call in message.tool_calls] == ["function"]
        assert message.tool_calls[0].function.arguments == '{"city": "Köln"}'  # type: ignore[union-attr]
    result: Any = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}
    client.chat.completions.create(model="tiny", messages=[*messages, message, result], tools=[tool])
    client.close()


def test_leaving_a_stream(client: openai.OpenAI, frontend: Frontend) -> None:
    stream = client.completions.create(model="tiny", prompt="x", max_tokens=400, stream=True)
    next(iter(stream))
    stream.close()
    assert client.completions.create(model="tiny", prompt="x", max_tokens=2).choices[0].text == '!"'


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "blink"


def test_errors_raise_the_right_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(model="tiny", prompt="x", temperature=-1)
    assert (bad.value.param, bad.value.code) == ("temperature", "invalid_value")
    assert "'temperature'" in bad.value.message
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="other", prompt="x")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="tiny", input="x")


def test_wrong_key(backend: MockBackend, start_frontend: StartFrontend) -> None:
    frontend = start_frontend(backend, api_key="right")
    url = f"{frontend.url}/v1"
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=url, api_key="wrong", max_retries=0).models.list()
    assert openai.OpenAI(base_url=url, api_key="right").models.list().data[0].id == "tiny"


def test_full_and_gone(start_backend: StartBackend, start_frontend: StartFrontend) -> None:
    backend = start_backend(n_slots=16, step_s=0.01)
    frontend = start_frontend(backend)
    client = openai.OpenAI(base_url=f"{frontend.url}/v1", api_key="none", max_retries=0)
    stream = client.completions.create(model="tiny", prompt=["x"] * 16, max_tokens=400, stream=True)
    chunks = iter(stream)
    next(chunks)
    backend.stalled.set()  # so that none of them ends before the others are refused
    with pytest.raises(openai.RateLimitError) as full:
        client.completions.create(model="tiny", prompt="x")
    assert int(full.value.response.headers["retry-after"]) >= 1
    backend.set_phase(Phase.STOPPED)
    with pytest.raises(openai.APIError, match="the scheduler is in phase STOPPED"):
        list(chunks)
    with pytest.raises(openai.InternalServerError) as gone:
        client.completions.create(model="tiny", prompt="x")
    assert gone.value.status_code == 503
