"""The two generation endpoints, whole and streaming, against a real server."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import Frontend, StartBackend, StartFrontend
from mock_backend import MockBackend
from numpy.typing import NDArray
from scripted_answers import echo, say
from sse import events, finish_reasons, text_of
from tiny_model import EOS, TOOL_CALL
from tokenizers import Tokenizer

pytestmark = pytest.mark.usefixtures("kept_frontend")

TEXT = "Hello, world! naïve café 漢字 😀 end"


@pytest.fixture
def tokens(model_dir: Path) -> Tokenizer:
    return Tokenizer.from_file(str(model_dir / "tokenizer.json"))


@pytest.fixture
def speaker(frontend: Frontend, tokens: Tokenizer) -> Frontend:
    """A frontend whose backend answers TEXT and ends."""
    frontend.backend.script = say(tokens.encode(TEXT).ids)
    return frontend


def post(frontend: Frontend, path: str, **body: Any) -> Any:
    response = frontend.client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def stream(frontend: Frontend, path: str, **body: Any) -> list[dict[str, Any]]:
    response = frontend.client.post(path, json={**body, "stream": True})
    assert response.status_code == 200, response.text
    return events(response)


def test_completion_has_text_usage_and_reason(speaker: Frontend, tokens: Tokenizer) -> None:
    answer = post(speaker, "/v1/completions", model="tiny", prompt="hello", max_tokens=100)
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    assert answer["model"] == "tiny"
    (choice,) = answer["choices"]
    assert choice == {
        "index": 0,
        "text": TEXT,
        "logprobs": None,
        "finish_reason": "stop",
        "stop_reason": None,
    }
    prompt, completion = len(tokens.encode("hello").ids), len(tokens.encode(TEXT).ids) + 1
    assert answer["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_completion_stream_says_the_same(speaker: Frontend) -> None:
    chunks = stream(
        speaker, "/v1/completions", prompt="hello", max_tokens=100, stream_options={"include_usage": True}
    )
    assert text_of(chunks) == TEXT
    assert finish_reasons(chunks) == {0: "stop"}
    assert len({(c["id"], c["created"], c["model"], c["object"]) for c in chunks}) == 1
    assert chunks[-1]["choices"] == []
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    whole = post(speaker, "/v1/completions", prompt="hello", max_tokens=100)
    assert chunks[-1]["usage"] == whole["usage"]


def test_no_text_ends_a_line(frontend: Frontend, tokens: Tokenizer) -> None:
    text = "a\x85b\u2028c\u2029d\u2030\n\r\x0b\x0c\x1c\x1d\x1ee"
    frontend.backend.script = say(tokens.encode(text).ids)
    response = frontend.client.post("/v1/completions", json={"prompt": "x", "max_tokens": 99, "stream": True})
    assert "\u2030" in response.text  # no other character is escaped
    lines = [line for line in response.text.splitlines() if line]
    assert text_of([json.loads(line.removeprefix("data: ")) for line in lines[:-1]]) == text


def test_usage_is_not_sent_unless_asked_for(speaker: Frontend) -> None:
    chunks = stream(speaker, "/v1/completions", prompt="hello", max_tokens=3)
    assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)


def test_one_event_per_token(frontend: Frontend) -> None:
    chunks = stream(frontend, "/v1/completions", prompt="hello", max_tokens=20)
    assert [chunk["choices"][0]["text"] for chunk in chunks] == [chr(0x21 + i) for i in range(20)]


def test_tokens_without_text_are_events_too(frontend: Frontend, tokens: Tokenizer) -> None:
    """A client that times tokens sees each: a special one that is skipped, and bytes of a character."""
    answer = [tokens.token_to_id("<|im_end|>"), *tokens.encode("😀 fox").ids]
    frontend.backend.script = say(answer)
    pieces = [tokens.decode(answer[: i + 1]).removesuffix("\ufffd") for i in range(len(answer))]
    expected = [
        after[len(before) :] for before, after in zip(["", *pieces], [*pieces, pieces[-1]], strict=True)
    ]
    assert expected.count("") >= 3
    chunks = stream(frontend, "/v1/completions", prompt="x", max_tokens=50)
    assert [chunk["choices"][0]["text"] for chunk in chunks] == expected
    chunks = stream(frontend, "/v1/chat/completions", messages=[{"role": "user", "content": "hi"}])
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[1:]]
    assert deltas == [{"content": piece} for piece in expected[:-1]] + [{}]


def test_chat_has_a_message(speaker: Frontend) -> None:
    answer = post(speaker, "/v1/chat/completions", model="tiny", messages=[{"role": "user", "content": "hi"}])
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": TEXT, "refusal": None}
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_chat_stream_begins_with_the_role(speaker: Frontend) -> None:
    chunks = stream(speaker, "/v1/chat/completions", messages=[{"role": "user", "content": "hi"}])
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all("role" not in chunk["choices"][0]["delta"] for chunk in chunks[1:])
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)
    assert text_of(chunks) == TEXT
    assert finish_reasons(chunks) == {0: "stop"}


def test_prompts_of_every_shape(frontend: Frontend, backend: MockBackend, tokens: Tokenizer) -> None:
    ids = tokens.encode("hello world").ids
    for prompt, expected in [
        ("hello world", [ids]),
        (["hello world", "fox"], [ids, tokens.encode("fox").ids]),
        (ids, [ids]),
        ([ids, [7, 8, 9]], [ids, [7, 8, 9]]),
    ]:
        backend.accepted.clear()
        answer = post(frontend, "/v1/completions", prompt=prompt, max_tokens=2)
        assert sorted(row.prompt for row in backend.accepted) == sorted(expected)
        assert [choice["index"] for choice in answer["choices"]] == list(range(len(expected)))
        assert answer["usage"]["prompt_tokens"] == sum(map(len, expected))
        assert answer["usage"]["completion_tokens"] == 2 * len(expected)


def test_n_choices_of_each_prompt(start_backend: StartBackend, start_frontend: StartFrontend) -> None:
    frontend = start_frontend(start_backend(script=echo))
    body = {"prompt": ["hello", "the fox"], "n": 2, "max_tokens": 50}
    answer = post(frontend, "/v1/completions", **body)
    assert [choice["text"] for choice in answer["choices"]] == ["hello", "hello", "the fox", "the fox"]
    chunks = stream(frontend, "/v1/completions", **body)
    assert [text_of(chunks, i) for i in range(4)] == ["hello", "hello", "the fox", "the fox"]
    assert finish_reasons(chunks) == dict.fromkeys(range(4), "stop")


def test_seed_of_each_choice(frontend: Frontend, backend: MockBackend) -> None:
    post(frontend, "/v1/completions", prompt="x", max_tokens=1, n=3, seed=41)
    assert sorted(int(row.descriptor["seed"]) for row in backend.accepted) == [41, 42, 43]
    post(frontend, "/v1/completions", prompt="x", max_tokens=1, seed=-1)
    assert int(backend.accepted[-1].descriptor["seed"]) == 2**64 - 1
    post(frontend, "/v1/completions", prompt="x", max_tokens=1)
    post(frontend, "/v1/completions", prompt="x", max_tokens=1)
    assert backend.accepted[-1].descriptor["seed"] != backend.accepted[-2].descriptor["seed"]


def test_sampling_reaches_the_descriptor(frontend: Frontend, backend: MockBackend) -> None:
    wanted = {
        "temperature": 0.25, "top_p": 0.5, "min_p": 0.125, "top_k": 7, "repetition_penalty": 1.5,
        "presence_penalty": -0.5, "frequency_penalty": 0.75, "max_tokens": 9, "min_tokens": 3,
    }  # fmt: skip
    post(frontend, "/v1/completions", prompt="x", ignore_eos=True, stop_token_ids=[598, 597], **wanted)
    descriptor = backend.accepted[-1].descriptor
    assert {name: float(descriptor[name]) for name in wanted} == wanted
    assert descriptor["flags"] == 1
    assert descriptor["stop_ids"][: descriptor["n_stop_ids"]].tolist() == [598, 597]


def test_defaults_are_neutral(frontend: Frontend, backend: MockBackend) -> None:
    post(frontend, "/v1/completions", prompt="x", temperature=None, top_k=-1, stop=None, user="me", extra=[1])
    d = backend.accepted[-1].descriptor
    assert (d["max_tokens"], d["temperature"], d["top_p"], d["min_p"], d["top_k"]) == (16, 1.0, 1.0, 0.0, 0)
    assert (d["repetition_penalty"], d["presence_penalty"], d["frequency_penalty"]) == (1.0, 0.0, 0.0)
    assert (d["flags"], d["n_stop_ids"], d["min_tokens"]) == (0, 0, 0)


def test_chat_answers_may_fill_the_context(frontend: Frontend, backend: MockBackend) -> None:
    messages = [{"role": "user", "content": "hi"}]
    answer = post(frontend, "/v1/chat/completions", messages=messages)
    assert answer["usage"]["total_tokens"] == 512
    assert answer["choices"][0]["finish_reason"] == "length"
    post(frontend, "/v1/chat/completions", messages=messages, max_completion_tokens=5, max_tokens=9)
    assert backend.accepted[-1].descriptor["max_tokens"] == 5


def test_tickets_follow_the_order_of_submission(frontend: Frontend, backend: MockBackend) -> None:
    post(frontend, "/v1/completions", prompt=["a", "b", "c", "d"], max_tokens=1)
    tickets = [int(row.descriptor["ticket"]) for row in backend.accepted]
    assert np.diff(sorted(tickets)).tolist() == [1, 1, 1]


def test_echo_puts_the_prompt_first(speaker: Frontend, tokens: Tokenizer) -> None:
    body = {"prompt": "the fox ", "max_tokens": 100, "echo": True}
    assert post(speaker, "/v1/completions", **body)["choices"][0]["text"] == "the fox " + TEXT
    assert text_of(stream(speaker, "/v1/completions", **body)) == "the fox " + TEXT
    body["prompt"] = tokens.encode("the fox ").ids
    assert post(speaker, "/v1/completions", **body)["choices"][0]["text"] == "the fox " + TEXT


def test_stop_tokens_end_the_answer_and_are_not_shown(frontend: Frontend, tokens: Tokenizer) -> None:
    first, second = tokens.encode("the").ids[0], tokens.token_to_id(TOOL_CALL)
    frontend.backend.script = say([first, second, first])
    body = {"prompt": "x", "max_tokens": 10, "stop_token_ids": [second]}
    answer = post(frontend, "/v1/completions", **body)
    assert answer["choices"][0]["text"] == tokens.decode([first])
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["stop_reason"] == second
    assert answer["usage"]["completion_tokens"] == 2
    shown = post(frontend, "/v1/completions", **body, include_stop_str_in_output=True)["choices"][0]["text"]
    assert shown == tokens.decode([first]) + TOOL_CALL
    assert text_of(stream(frontend, "/v1/completions", **body)) == tokens.decode([first])


def test_special_tokens_are_shown_on_request(frontend: Frontend, tokens: Tokenizer) -> None:
    im_end, word = tokens.token_to_id("<|im_end|>"), tokens.encode("fox").ids
    frontend.backend.script = say([im_end, *word])
    body = {"prompt": "x", "max_tokens": 10}
    assert post(frontend, "/v1/completions", **body)["choices"][0]["text"] == "fox"
    shown = post(frontend, "/v1/completions", **body, skip_special_tokens=False)["choices"][0]["text"]
    assert shown == "<|im_end|>fox"
    assert EOS not in shown


def test_models(frontend: Frontend, model_dir: Path) -> None:
    listed = frontend.client.get("/v1/models").json()
    assert listed["object"] == "list"
    (model,) = listed["data"]
    assert (model["id"], model["object"], model["max_model_len"]) == ("tiny", "model", 512)
    assert model["root"] == str(model_dir)  # vLLM's benchmark reads the tokenizer there
    assert frontend.client.get("/v1/models/tiny").json() == model


def test_served_model_name(start_backend: StartBackend, start_frontend: StartFrontend) -> None:
    frontend = start_frontend(start_backend(), served_model_name="org/other")
    assert frontend.client.get("/v1/models/org/other").status_code == 200
    assert post(frontend, "/v1/completions", model="org/other", prompt="x")["model"] == "org/other"


def test_long_prompts_are_tokenized_off_the_loop(
    start_backend: StartBackend, start_frontend: StartFrontend, tokens: Tokenizer
) -> None:
    backend = start_backend(max_context=65536, n_slots=16)
    frontend = start_frontend(backend)
    prompt = "the quick brown fox " * 2500
    assert len(prompt) > 32768
    post(frontend, "/v1/completions", prompt=prompt, max_tokens=1)
    assert backend.accepted[-1].prompt == tokens.encode(prompt).ids


def test_many_prompts_are_tokenized_and_decoded_off_the_loop(
    start_backend: StartBackend, start_frontend: StartFrontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F10. Each of them is short."""
    frontend = start_frontend(start_backend(max_context=4096))
    threads: list[str] = []

    def recorded(text: str, special: bool) -> NDArray[np.uint32]:
        threads.append(threading.current_thread().name)
        return np.full(len(text), 5, np.uint32)

    monkeypatch.setattr(frontend.service.tokenizer, "_encode", recorded)
    prompt = "x" * 3000
    answer = post(frontend, "/v1/completions", prompt=[prompt] * 12, max_tokens=1, echo=True)
    assert set(threads) == {"texts"}
    assert all(choice["text"] == prompt + "!" for choice in answer["choices"])
    answer = post(frontend, "/v1/completions", prompt=[[5] * 3000] * 12, max_tokens=1, echo=True)
    assert all(len(choice["text"]) == 3001 for choice in answer["choices"])
