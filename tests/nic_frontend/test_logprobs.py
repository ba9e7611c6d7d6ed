"""Log-probabilities as the endpoints write them, echoes with them, and what is refused.

The mocked backend tells -0.25, -0.5, ... of the tokens of a prompt, and of those of an answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import openai
import pytest
from harness import CHAT, COMPLETION, Frontend, Speak, StartBackend, StartFrontend, error_of
from limits import WAIT_S
from mock_backend import MockBackend
from scripted_answers import say
from sse import events
from templates import HERMES
from tiny_model import build_tokenizer
from typed_sse import typed_events

pytestmark = pytest.mark.usefixtures("kept_frontend")

PROMPT = [5, 6, 7]
HALF = math.log(2)


def ask(frontend: Frontend, path: str, **body: Any) -> Any:
    answer = frontend.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def joined(parts: Iterable[list[Any]]) -> list[Any]:
    return [item for part in parts for item in part]


def texts(*tokens: int) -> list[str]:
    decoded = [build_tokenizer().decode([token], skip_special_tokens=False) for token in tokens]
    return [str(text) for text in decoded]


def entry(token: int, logprob: float) -> Any:
    (text,) = texts(token)
    return {"token": text, "logprob": pytest.approx(logprob), "bytes": list(text.encode())}


def content(token: int, position: int, top: int) -> Any:
    own = -(1 + position) / 4
    return entry(token, own) | {"top_logprobs": [entry(token + i, own - HALF * i) for i in range(top)]}


@pytest.mark.parametrize("top", [None, 0, 3])
@pytest.mark.parametrize("stream", [False, True])
def test_of_a_chat(frontend: Frontend, stream: bool, top: int | None) -> None:
    body = {**CHAT, "max_tokens": 3, "logprobs": True, "top_logprobs": top, "stream": stream}
    expected = [content(4 + i, i, top or 0) for i in range(3)]
    answer = frontend.client.post("/v1/chat/completions", json=body)
    if stream:
        role, *chunks = (chunk["choices"][0] for chunk in events(answer))
        assert role["logprobs"] is None
        assert [chunk["logprobs"]["content"] for chunk in chunks] == [[one] for one in expected]
    else:
        assert answer.json()["choices"][0]["logprobs"] == {"content": expected, "refusal": None}


@pytest.mark.parametrize("tokens_per_step", [1, 7])
@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_of_a_completion(frontend: Frontend, stream: bool, echo: bool, tokens_per_step: int) -> None:
    """In an echo the prompt's come first; nothing is known of its first token. The same of two choices."""
    frontend.backend.tokens_per_step = tokens_per_step
    body = {"prompt": PROMPT, "n": 2, "max_tokens": 10, "logprobs": 2, "echo": echo, "stream": stream}
    answer = frontend.client.post("/v1/completions", json=body)
    shown = [*(PROMPT if echo else []), *range(4, 14)]
    logprobs = [*([None, -0.5, -0.75] if echo else []), *(-(1 + i) / 4 for i in range(10))]
    whole = [chunk["choices"][0] for chunk in events(answer)] if stream else answer.json()["choices"]
    for index in range(2):
        parts = [part["logprobs"] for part in whole if part["index"] == index]
        told = {name: joined(part[name] for part in parts) for name in parts[0]}
        assert told["tokens"] == texts(*shown)
        assert told["token_logprobs"] == pytest.approx(logprobs)
        assert told["text_offset"] == list(range(len(shown)))
        assert [set(top) if top else None for top in told["top_logprobs"]] == [
            None if own is None else {*texts(token, token + 1)}
            for token, own in zip(shown, logprobs, strict=True)
        ]
        for own, top in zip(told["token_logprobs"], told["top_logprobs"], strict=True):
            assert top is None or max(top.values()) == own


def test_what_evaluations_ask_of_a_prompt(frontend: Frontend, backend: MockBackend) -> None:
    """lm-eval's loglikelihoods: many prompts, an echo, one token or none behind it."""
    prompts = [PROMPT, [8, 9]]
    for max_tokens in (0, 1):
        body = {"prompt": prompts, "max_tokens": max_tokens, "echo": True, "logprobs": 1, "temperature": 0}
        answer = ask(frontend, "/v1/completions", **body)
        for choice, prompt in zip(answer["choices"], prompts, strict=True):
            assert choice["logprobs"]["tokens"] == texts(*prompt, *[4] * max_tokens)
            assert choice["text"] == "".join(choice["logprobs"]["tokens"])
            assert choice["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == 2 * max_tokens
    descriptor = backend.accepted[0].descriptor
    assert descriptor is not None
    assert (descriptor["max_tokens"], descriptor["prompt_logprob_words"], descriptor["logprob_words"]) == (
        1,
        2,
        2,
    )


def test_a_special_token_that_is_not_shown_takes_no_place(frontend: Frontend, backend: MockBackend) -> None:
    """In front of a text there may be one; among tokens it is shown."""
    for prompt, first in (("hi", 0), ([0, 11, 12], len("<|bos|>"))):
        body = {"prompt": prompt, "max_tokens": 0, "echo": True, "logprobs": 0}
        choice = ask(frontend, "/v1/completions", **body)["choices"][0]
        told = choice["logprobs"]
        for text, offset in zip(told["tokens"], told["text_offset"], strict=True):
            assert choice["text"].startswith(text, offset) or text == "<|bos|>"
        if isinstance(prompt, list):
            assert told["text_offset"][1] == first


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_alone(frontend: Frontend, stream: bool) -> None:
    body = {"prompt": PROMPT, "max_tokens": 0, "echo": True, "stream": stream}
    answer = frontend.client.post("/v1/completions", json=body)
    choices = [chunk["choices"][0] for chunk in events(answer)] if stream else answer.json()["choices"]
    assert "".join(choice["text"] for choice in choices) == "".join(texts(*PROMPT))
    assert choices[-1]["finish_reason"] == "length"


def test_prompt_logprobs_in_vllms_form(frontend: Frontend, backend: MockBackend) -> None:
    completion = ask(frontend, "/v1/completions", prompt=PROMPT, max_tokens=1, prompt_logprobs=1, n=2)
    (six,), (seven,) = texts(6), texts(7)
    for choice in completion["choices"]:
        assert choice["prompt_logprobs"] == [
            None,
            {"6": {"logprob": -0.5, "rank": 1, "decoded_token": six}},
            {"7": {"logprob": -0.75, "rank": 1, "decoded_token": seven}},
        ]
        assert choice["logprobs"] is None
    chat = ask(frontend, "/v1/chat/completions", **CHAT, prompt_logprobs=0)
    assert len(chat["prompt_logprobs"]) == len(backend.accepted[-1].prompt)


def test_a_token_that_is_no_text_is_written_as_bytes(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    tokens = build_tokenizer().encode("\u20ac").ids
    assert len(tokens) == 3
    frontend = start_frontend(start_backend(script=say(tokens)))
    told = ask(frontend, "/v1/completions", **COMPLETION, logprobs=0)["choices"][0]["logprobs"]
    assert told["tokens"] == ["bytes:\\xe2", "bytes:\\x82"]
    chat = ask(frontend, "/v1/chat/completions", **{**CHAT, "max_tokens": 3}, logprobs=True)
    entries = chat["choices"][0]["logprobs"]["content"]
    assert bytes(joined(one["bytes"] for one in entries)) == "\u20ac".encode()


@pytest.mark.parametrize("stream", [False, True])
def test_behind_a_stop_string_nothing_is_told(frontend: Frontend, stream: bool) -> None:
    body = {**COMPLETION, "max_tokens": 20, "stop": "&", "logprobs": 0, "stream": stream}
    answer = frontend.client.post("/v1/completions", json=body)
    choices = [chunk["choices"][0] for chunk in events(answer)] if stream else answer.json()["choices"]
    told = joined(choice["logprobs"]["tokens"] for choice in choices if choice["logprobs"])
    assert told == list('!"#$%&')


def test_tokens_by_their_ids(frontend: Frontend) -> None:
    """As in vLLM, for clients that want to know which of several tokens with one text it is."""
    body = {"max_tokens": 2, "return_tokens_as_token_ids": True}
    told = ask(frontend, "/v1/completions", **COMPLETION | body, logprobs=1)["choices"][0]["logprobs"]
    assert told["tokens"] == ["token_id:4", "token_id:5"]
    assert [set(top) for top in told["top_logprobs"]] == [{"token_id:4"}, {"token_id:5"}]
    for changes in ({}, {"return_tokens_as_token_ids": False}):
        chat = {**CHAT, **body, "logprobs": True, "top_logprobs": 2} | changes
        (first, _) = ask(frontend, "/v1/chat/completions", **chat)["choices"][0]["logprobs"]["content"]
        names = [first["token"], *(likely["token"] for likely in first["top_logprobs"])]
        ids = [4, 4, 5]
        assert names == ([f"token_id:{token}" for token in ids] if not changes else texts(*ids))
        assert first["bytes"] == list(texts(4)[0].encode())


def test_of_chats_with_reasoning_and_calls(speak: Speak) -> None:
    """Every token of an answer, whatever it is part of."""
    call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    frontend = speak(HERMES, f"<think>Hm.</think>Yes.{call}")
    tools = [{"type": "function", "function": {"name": "f"}}]
    body = {**CHAT, "max_tokens": 200, "logprobs": True, "return_token_ids": True, "tools": tools}
    whole = ask(frontend, "/v1/chat/completions", **body)["choices"][0]
    assert len(whole["logprobs"]["content"]) == len(whole["token_ids"])
    chunks = events(frontend.client.post("/v1/chat/completions", json={**body, "stream": True}))
    parts = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert joined(part["content"] for part in parts if part) == whole["logprobs"]["content"]


@pytest.mark.parametrize("stream", [False, True])
def test_of_responses_text_alone(speak: Speak, stream: bool) -> None:
    frontend = speak(HERMES, "<think>Hm.</think>Yes, so it is.")
    include = ["message.output_text.logprobs"]
    body = {"input": "hi", "include": include, "top_logprobs": 2, "stream": stream}
    answer = frontend.client.post("/v1/responses", json=body)
    found = typed_events(answer) if stream else []
    response = found[-1]["response"] if stream else answer.json()
    message = response["output"][-1]["content"][0]
    assert "".join(one["token"] for one in message["logprobs"]) == "Yes, so it is."
    assert {len(one["top_logprobs"]) for one in message["logprobs"]} == {2}
    if stream:
        deltas = [event for event in found if event["type"] == "response.output_text.delta"]
        assert joined(event["logprobs"] for event in deltas) == message["logprobs"]
    ignored = frontend.client.post("/v1/responses", json={"input": "hi", "top_logprobs": 2})
    assert "'top_logprobs' was ignored" in ignored.headers["x-blink-warning"]


def test_the_openai_client_reads_them(frontend: Frontend) -> None:
    client = openai.OpenAI(base_url=f"{frontend.url}/v1", api_key="none", timeout=WAIT_S)
    chat = client.chat.completions.create(model="tiny", logprobs=True, top_logprobs=2, **CHAT)
    told = chat.choices[0].logprobs
    assert told is not None
    assert told.content is not None
    assert [len(one.top_logprobs) for one in told.content] == [2, 2]
    completion = client.completions.create(model="tiny", logprobs=2, echo=True, **COMPLETION)
    assert completion.choices[0].logprobs is not None


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"top_logprobs": 2}, "top_logprobs", "needs 'logprobs': true"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "at most 20"),
        ({"stream": True, "prompt_logprobs": 0}, "prompt_logprobs", "cannot be streamed"),
    ],
)
def test_refused_in_chats(frontend: Frontend, body: dict[str, Any], param: str, message: str) -> None:
    error = error_of(frontend.client.post("/v1/chat/completions", json={**CHAT, **body}), 400)
    assert error["param"] == param
    assert message in error["message"]


def test_what_does_not_fit_the_heap_is_refused_with_its_bound(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    backend = start_backend(n_slots=16, output_heap=512)
    frontend = start_frontend(backend)
    body = {"prompt": PROMPT, "max_tokens": 100, "logprobs": 5}
    error = error_of(frontend.client.post("/v1/completions", json=body), 400)
    assert error["param"] == "logprobs"
    assert "512 words" in error["message"]
    assert ask(frontend, "/v1/completions", **{**body, "max_tokens": 60})["usage"]["completion_tokens"] == 60
    chat = ask(frontend, "/v1/chat/completions", messages=CHAT["messages"], logprobs=True, top_logprobs=20)
    assert chat["usage"]["completion_tokens"] == 16  # without a limit, as many as there is room for


def test_controls_stand_behind_the_prompt(frontend: Frontend, backend: MockBackend) -> None:
    body = {"logit_bias": {"5": 1.5, "7": -100}, "allowed_token_ids": [0, 33, 599], "bad_words": ["the fox"]}
    ask(frontend, "/v1/completions", **{**COMPLETION, **body})
    row = backend.accepted[-1]
    assert row.descriptor is not None
    assert row.descriptor["n_biases"] == 2
    mask, biases, bans = row.controls[:19], row.controls[19:23], row.controls[23:]
    assert mask.tolist() == [1, 2, *[0] * 16, 1 << 23]
    assert biases.tolist() == [5, 0x3FC00000, 7, 0xC2C80000]
    ends = [i for i, word in enumerate(bans.tolist()) if word >> 31]
    tokens = [word & 0x7FFFFFFF for word in bans.tolist()]
    words = [tokens[a + 1 : b + 1] for a, b in zip([-1, *ends], ends, strict=False)]
    assert [build_tokenizer().decode(word) for word in words] == ["the fox", " the fox"]
    neutral = {"logit_bias": {}, "allowed_token_ids": [], "bad_words": []}
    ask(frontend, "/v1/completions", **{**COMPLETION, **neutral})
    assert len(backend.accepted[-1].controls) == 0
