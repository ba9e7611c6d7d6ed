"""Requests that may contradict themselves, drawn at random: each is answered or refused, none is a fault."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serve_process import ServeProcess

EOS = (1, 6)  # of the demo model
H, AB = 78, 320  # "h" and "ab"
TOKENS = st.sampled_from([*EOS, H, AB, 5, 70, 71, 1023])
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "allowed_token_ids": st.lists(TOKENS, max_size=3),
    "bad_words": st.lists(st.sampled_from(["h", "hh", "ab", "a", "abab", "1", "-", "{"]), max_size=4),
    "min_tokens": st.integers(0, 5),
    "max_tokens": st.integers(1, 5),
    "stop_token_ids": st.lists(TOKENS, max_size=3),
    "ignore_eos": st.booleans(),
    "logit_bias": st.dictionaries(TOKENS.map(str), st.sampled_from([-100, 100]), max_size=4),
    "stop": st.sampled_from(["h", "b"]),
    "temperature": st.sampled_from([0, 1]),
    "n": st.integers(1, 2),
    "logprobs": st.integers(0, 1),
    "stream": st.booleans(),
}
FORMS = st.sampled_from([
    {}, {"guided_regex": "h+"}, {"guided_regex": "(ab){2}c"}, {"guided_choice": ["ab", "h"]},
    {"guided_json": {"type": "integer"}}, {"response_format": {"type": "json_object"}},
    {"structured_outputs": {"regex": "[ab]{0,3}"}}, {"guided_grammar": 'root ::= "h" root | "ab"'},
])  # fmt: skip
CODES = ("no_token_left", "grammar_dead_end")


def errors_in(stream: str) -> list[dict[str, Any]]:
    chunks = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    return [chunk["error"] for chunk in chunks if "error" in chunk]


@pytest.mark.slow
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chat=st.booleans(), fields=st.fixed_dictionaries({}, optional=FIELDS), form=FORMS)
def test_no_combination_of_fields_is_a_fault(
    server: ServeProcess, chat: bool, fields: dict[str, Any], form: dict[str, Any]
) -> None:
    body: dict[str, Any] = {**fields, **form}
    if chat:
        body["messages"] = [{"role": "user", "content": "hi"}]
        body["logprobs"] = bool(body.get("logprobs"))
    else:
        body["prompt"] = "hi"
    path = "/v1/chat/completions" if chat else "/v1/completions"
    answer = server.client.post(path, json=body)
    assert answer.status_code in (200, 400), (body, answer.text)
    if answer.status_code == 400:
        message = answer.json()["error"]["message"]
        assert sum(f"'{name}" in message for name in body) >= 1, (body, message)
    elif body.get("stream"):
        for error in errors_in(answer.text):
            assert (error["type"], error["code"] in CODES) == ("invalid_request_error", True), (body, error)


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "named", "token"),
    [
        ({"allowed_token_ids": [H], "bad_words": ["hh"]}, "'allowed_token_ids' and 'bad_words'", 2),
        (
            {"allowed_token_ids": [AB], "guided_regex": "(ab){2}c"},
            "'allowed_token_ids' and 'guided_regex'",
            3,
        ),
        (
            {
                "allowed_token_ids": [H, *EOS],
                "bad_words": ["hh"],
                "min_tokens": 3,
                "logit_bias": {str(H): 100},
            },
            "'allowed_token_ids', 'bad_words' and 'min_tokens'",
            2,
        ),
    ],
)
def test_a_place_without_tokens_amid_an_answer(
    server: ServeProcess, fields: dict[str, Any], named: str, token: int, stream: bool
) -> None:
    answer = server.client.post("/v1/completions", json={"prompt": "hi", **fields, "stream": stream})
    if stream:
        assert answer.status_code == 200
        (error,) = errors_in(answer.text)
        assert answer.text.endswith("data: [DONE]\n\n")
    else:
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
    assert error["code"] == "no_token_left"
    assert (
        f"{named} contradict each other: they leave no token for token {token} of the answer"
        in error["message"]
    )
