"""Bad input: the right status, OpenAI's error body, and a message that names the field."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures import ring_of_its_own
from harness import CHAT, COMPLETION, Frontend, Speak, StartFrontend, error_of
from hypothesis import given, settings
from hypothesis import strategies as st
from limits import WAIT_S
from mock_backend import MockBackend
from templates import GEMMA

from nic_frontend.text.tokenizer import Tokenizer

BAD_VALUES = [
    ("temperature", [-0.1, 2.1, "hot", True, [], 1e999]),
    ("top_p", [0, -1, 1.01, "x"]),
    ("min_p", [-0.1, 1.5, {}]),
    ("top_k", [-2, 1.5, "all", False]),
    ("repetition_penalty", [0, -1, "x"]),
    ("presence_penalty", [-2.1, 2.1, "x"]),
    ("frequency_penalty", [-2.1, 3, "NoneType"]),
    ("max_tokens", [0, -1, 1.5, "many", True, 2**40]),
    ("min_tokens", [-1, "x", 3]),
    ("n", [0, -1, 129, "x"]),
    ("seed", ["x", 1.5, 2**65]),
    ("stop", [1, [1], {"a": 1}, "", ["a", ""], ["s"] * 17, "s" * 2049, ["s" * 1025] * 2]),
    ("stop_token_ids", ["x", [1.5], ["a"], [-1], [600], [5] * 16]),
    ("stream", ["yes", 1]),
    ("stream_options", [{"include_usage": True}, "x"]),
    ("ignore_eos", [1, "true"]),
    ("model", [1, ["tiny"]]),
    ("best_of", [3]),
    ("logprobs", [-1, 21, 1.5, True, "x"]),
    ("prompt_logprobs", [-1, 21, True]),
    ("logit_bias", [{"50": -101}, {"50": "x"}, {"600": 1}, {"x": 1}, {"-1": 1}, {"": 1}, [1], {"5": 1e999}]),
    ("allowed_token_ids", [[600], [-1], ["x"], "x"]),
    ("bad_words", [[""], [1], "x", ["x" * 3000]]),
    ("suffix", ["x"]),
    ("guided_json", [5, "{", "[1]"]),
    ("tools", [[{"type": "function"}]]),
    ("prompt_embeds", ["AAAA", []]),
]


@pytest.fixture(scope="module")
def frontend(model_dir: Path) -> Iterator[Frontend]:
    """One for all tests: what is refused leaves nothing behind, as the next test sees."""
    backend = MockBackend(ring_of_its_own(), model_dir).start()
    # What follows a request that had nearly all slots waits until they are released, however long that takes.
    frontend = Frontend(backend, model_dir, slot_wait_s=WAIT_S)
    yield frontend
    frontend.stop()
    backend.stop()


@pytest.mark.parametrize(("field", "values"), BAD_VALUES, ids=[field for field, _ in BAD_VALUES])
def test_bad_value_of(frontend: Frontend, field: str, values: list[Any]) -> None:
    for value in values:
        content = json.dumps({**COMPLETION, field: value})
        headers = {"content-type": "application/json"}
        response = frontend.client.post("/v1/completions", content=content, headers=headers)
        error = error_of(response, 400)
        assert error["type"] == "invalid_request_error"
        assert error["param"].partition("[")[0] == field, (value, error)  # with the item, such as stop[1]
        assert f"'{error['param']}'" in error["message"]


def test_nan_and_infinity_are_refused(frontend: Frontend) -> None:
    for field in ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty"):
        for value in ("NaN", "Infinity", "-Infinity"):
            content = f'{{"prompt": "x", "{field}": {value}}}'
            headers = {"content-type": "application/json"}
            error = error_of(frontend.client.post("/v1/completions", content=content, headers=headers), 400)
            assert error["param"] == field


@pytest.mark.parametrize(
    "prompt",
    [None, "", [], [[]], ["a", ""], 5, True, {"a": 1}, [1, "a"], [[1], "a", 2], [[1.5]], [-1], [600], [None]],
)
def test_bad_prompt(frontend: Frontend, prompt: Any) -> None:
    assert (
        error_of(frontend.client.post("/v1/completions", json={"prompt": prompt}), 400)["param"] == "prompt"
    )


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ([], "messages"),
        ("hi", "messages"),
        (["hi"], "messages[0]"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": "wizard", "content": "x"}], "messages[0].role"),
        ([{"role": 3, "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": "a"}, {"role": "user"}], "messages[1].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": ["text"]}], "messages[0].content[0]"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
            "messages[0].content[0].type",
        ),
    ],
)
def test_bad_messages(frontend: Frontend, messages: Any, param: str) -> None:
    response = frontend.client.post("/v1/chat/completions", json={"messages": messages})
    assert error_of(response, 400)["param"] == param


def test_template_complaints_are_the_clients(speak: Speak) -> None:
    body = {"messages": [{"role": "assistant", "content": "a"}]}
    error = error_of(speak(GEMMA, "").client.post("/v1/chat/completions", json=body), 400)
    assert "roles must alternate" in error["message"]


def test_lone_surrogates(frontend: Frontend) -> None:
    content, headers = b'{"prompt": "a\\ud800b"}', {"content-type": "application/json"}
    error = error_of(frontend.client.post("/v1/completions", content=content, headers=headers), 400)
    assert "surrogate" in error["message"]


def test_prompt_too_long(frontend: Frontend) -> None:
    error = error_of(frontend.client.post("/v1/completions", json={"prompt": [5] * 512}), 400)
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "prompt"
    assert "512" in error["message"]
    chat = {"messages": [{"role": "user", "content": "a b c d e f g h " * 100}]}
    assert error_of(frontend.client.post("/v1/chat/completions", json=chat), 400)["param"] == "messages"
    longest = frontend.client.post("/v1/completions", json={"prompt": [5] * 511, "max_tokens": 1})
    assert longest.status_code == 200


def test_answer_too_long(frontend: Frontend) -> None:
    response = frontend.client.post("/v1/completions", json={"prompt": [5] * 500, "max_tokens": 13})
    error = error_of(response, 400)
    assert (error["param"], error["code"]) == ("max_tokens", "context_length_exceeded")
    body = {**CHAT, "max_tokens": None, "max_completion_tokens": 512}
    error = error_of(frontend.client.post("/v1/chat/completions", json=body), 400)
    assert error["param"] == "max_completion_tokens"


def test_more_choices_than_slots(frontend: Frontend) -> None:
    error = error_of(frontend.client.post("/v1/completions", json={"prompt": "x", "n": 65}), 400)
    assert error["param"] == "n"
    error = error_of(frontend.client.post("/v1/completions", json={"prompt": ["x"] * 65}), 400)
    assert error["param"] == "prompt"


@pytest.mark.parametrize(
    ("changes", "param", "code"),
    [
        ({"prompt": ["x"] * 65}, "prompt", "invalid_value"),
        ({"prompt": [[600]] * 65, "echo": True}, "prompt", "invalid_value"),
        ({"prompt": ["x", "y"], "n": 33}, "n", "invalid_value"),
        ({"prompt": [600] * 512, "echo": True}, "prompt", "context_length_exceeded"),
        ({"prompt": [[600], [600] * 512]}, "prompt", "context_length_exceeded"),
        ({"prompt": [[5]], "max_tokens": 512, "echo": True}, "max_tokens", "context_length_exceeded"),
        ({"messages": [{"role": "user", "content": "x"}], "n": 65}, "n", "invalid_value"),
        ({"messages": [{"role": "user", "content": ""}] * 512}, "messages", "context_length_exceeded"),
    ],
)
def test_what_is_too_much_is_refused_before_it_is_looked_at(
    frontend: Frontend, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], param: str, code: str
) -> None:
    """F10. Token 600 does not exist, and whoever tokenizes or decodes gets 500."""
    monkeypatch.delattr(Tokenizer, "decode")
    if "max_tokens" not in changes:
        monkeypatch.delattr(Tokenizer, "encode")
    path = "/v1/chat/completions" if "messages" in changes else "/v1/completions"
    error = error_of(frontend.client.post(path, json=changes), 400)
    assert (error["param"], error["code"]) == (param, code)
    assert "600" not in error["message"]


def test_unknown_model(frontend: Frontend) -> None:
    for path, body in (("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)):
        error = error_of(frontend.client.post(path, json={**body, "model": "gpt-9"}), 404)
        assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert error_of(frontend.client.get("/v1/models/gpt-9"), 404)["code"] == "model_not_found"


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'"x"', b"5", b"\xff\xfe", b'{"prompt": }', b"[" * 100000]
)
def test_bodies_that_are_no_object(frontend: Frontend, content: bytes) -> None:
    headers = {"content-type": "application/json"}
    for path in ("/v1/completions", "/v1/chat/completions"):
        error_of(frontend.client.post(path, content=content, headers=headers), 400)


def test_body_over_the_limit(backend: MockBackend, start_frontend: StartFrontend) -> None:
    frontend = start_frontend(backend, max_body_bytes=1000)
    headers = {"content-type": "application/json"}
    content = b'{"prompt": "' + b"a" * 2000 + b'"}'
    error = error_of(frontend.client.post("/v1/completions", content=content, headers=headers), 413)
    assert error["code"] == "request_too_large"
    pieces = (content[i : i + 100] for i in range(0, len(content), 100))  # chunked: no content-length
    error_of(frontend.client.post("/v1/completions", content=pieces, headers=headers), 413)
    assert frontend.client.post("/v1/completions", json=COMPLETION).status_code == 200


def test_body_that_does_not_arrive(backend: MockBackend, start_frontend: StartFrontend) -> None:
    frontend = start_frontend(backend, body_timeout_s=0.2)
    with socket.create_connection(("127.0.0.1", frontend.port), timeout=WAIT_S) as connection:
        head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        head += "content-length: 50\r\n\r\n"
        connection.sendall(head.encode() + b'{"prompt"')
        assert b" 408 " in connection.recv(4096).splitlines()[0]


def test_other_media_types(frontend: Frontend) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    error_of(frontend.client.post("/v1/completions", content=b'{"prompt": "x"}', headers=headers), 415)
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    response = frontend.client.post("/v1/completions", content=b'{"prompt": "x"}', headers=headers)
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (["a", 1], "'prompt[1]' must be a string or an array of token ids, it is an integer"),
        ([[1], [2, "a"]], "'prompt[1][1]' must be a token id, it is a string"),
        ([1, None], "'prompt[1]' must be a token id, it is null"),
        ({}, "'prompt' must be a string or an array of token ids, it is an object"),
    ],
)
def test_the_item_at_fault_is_named(frontend: Frontend, prompt: Any, message: str) -> None:
    error = error_of(frontend.client.post("/v1/completions", json={"prompt": prompt}), 400)
    assert error["message"] == message


def test_an_encoded_body_is_refused_as_that(frontend: Frontend) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    error = error_of(frontend.client.post("/v1/completions", content=b"\x1f\x8b", headers=headers), 415)
    assert "content-encoding gzip" in error["message"]


def test_nothing_bad_reached_the_backend(backend: MockBackend, start_frontend: StartFrontend) -> None:
    frontend = start_frontend(backend)
    frontend.client.post("/v1/completions", json={**COMPLETION, "temperature": -1})
    frontend.client.post("/v1/completions", json={**COMPLETION, "prompt": [5, 600]})
    frontend.client.post("/v1/completions", json={**COMPLETION, "n": 2, "min_tokens": 5})
    assert backend.accepted == []
    assert backend.commands == []


def test_lone_surrogates_in_an_error_message(frontend: Frontend) -> None:
    content, headers = b'{"prompt": "x", "model": "a\\ud800b"}', {"content-type": "application/json"}
    response = frontend.client.post("/v1/completions", content=content, headers=headers)
    assert "a\ud800b" in error_of(response, 404)["message"]


def test_a_part_without_a_type_is_text(frontend: Frontend) -> None:
    messages = [{"role": "user", "content": [{"text": "x"}]}]
    answer = frontend.client.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 1})
    assert answer.status_code == 200, answer.text


FIELD_NAMES = [field for field, _ in BAD_VALUES] + [
    "prompt",
    "messages",
    "echo",
    "chat_template_kwargs",
    "user",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_effort",
    "truncate_prompt_tokens",
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 700) | st.floats() | st.text(max_size=8) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
PLAIN = st.sampled_from([COMPLETION, CHAT])


@settings(max_examples=300, deadline=None)
@given(base=PLAIN, changes=st.dictionaries(st.sampled_from(FIELD_NAMES), VALUES, max_size=3))
def test_no_body_makes_the_server_fail(
    frontend: Frontend, base: dict[str, Any], changes: dict[str, Any]
) -> None:
    path = "/v1/completions" if "prompt" in base else "/v1/chat/completions"
    headers = {"content-type": "application/json"}
    response = frontend.client.post(path, content=json.dumps({**base, **changes}), headers=headers)
    if response.status_code != 200:
        error_of(response, 404 if response.status_code == 404 and "model" in changes else 400)
