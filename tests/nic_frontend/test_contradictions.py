"""Fields that leave no token together: 400 that names them, at once where the fields alone decide."""

# ruff: noqa: E501 (cases are long)

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from harness import CHAT, Frontend, StartBackend, StartFrontend, error_of
from samplings import plain_sampling
from tiny_model import build_tokenizer

from nic_frontend.api import contradictions
from nic_frontend.errors import ApiError
from nic_frontend.grammar.compiler import compiled
from nic_frontend.grammar.regex import matched
from nic_frontend.ring.request import Mailbox, Request
from ringbuffer.abi import Reason
from ringbuffer.extents import controls

pytestmark = pytest.mark.usefixtures("kept_frontend")

VOCAB, EOS = 600, 1  # of the mock backend
B, C, D = (build_tokenizer().encode(letter, add_special_tokens=False).ids[0] for letter in "BCD")
NUMBER = {"type": "integer"}

CONTRADICTIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({"allowed_token_ids": [EOS], "min_tokens": 1}, ["allowed_token_ids", "min_tokens"]),
    ({"allowed_token_ids": [EOS, B, C], "stop_token_ids": [C, B], "min_tokens": 2}, ["allowed_token_ids", "stop_token_ids", "min_tokens"]),
    ({"allowed_token_ids": [B], "ignore_eos": True, "stop_token_ids": [B], "min_tokens": 1}, ["allowed_token_ids", "stop_token_ids", "min_tokens"]),
    ({"allowed_token_ids": [B, C], "bad_words": ["B", "C"]}, ["allowed_token_ids", "bad_words"]),
    ({"allowed_token_ids": [B, EOS], "bad_words": ["B"], "min_tokens": 1}, ["allowed_token_ids", "bad_words", "min_tokens"]),
    ({"allowed_token_ids": [B, C, EOS], "guided_json": NUMBER}, ["allowed_token_ids", "guided_json"]),
    ({"allowed_token_ids": [EOS], "guided_regex": "a+"}, ["allowed_token_ids", "guided_regex"]),
    ({"allowed_token_ids": [B, C], "bad_words": ["B"], "structured_outputs": {"choice": ["B", "D"]}}, ["allowed_token_ids", "bad_words", "structured_outputs.choice"]),
    ({"allowed_token_ids": [B], "response_format": {"type": "json_object"}}, ["allowed_token_ids", "response_format"]),
    ({"bad_words": ["B"], "guided_regex": "B"}, ["bad_words", "guided_regex"]),
]  # fmt: skip

COMPATIBLE: list[dict[str, Any]] = [
    {"allowed_token_ids": [EOS]},
    {"allowed_token_ids": [EOS], "ignore_eos": True, "min_tokens": 1},
    {"allowed_token_ids": [EOS, B], "min_tokens": 2},
    {"allowed_token_ids": [B, C], "bad_words": ["B"]},
    {"allowed_token_ids": [B, C], "bad_words": ["BB", "CC", "BC", "CB"]},  # and one token fits
    {"allowed_token_ids": [B], "guided_regex": "B{0,3}"},
    {"allowed_token_ids": [EOS], "guided_regex": "B{0,3}"},
    {"allowed_token_ids": list(range(VOCAB)), "guided_json": NUMBER},
    {"allowed_token_ids": [], "min_tokens": 1},  # nothing is asked
    {"logit_bias": {str(token): -100 for token in range(VOCAB)}, "min_tokens": 1},
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fields", "named"), CONTRADICTIONS, ids=lambda value: "-".join(value))
def test_what_the_fields_alone_decide_is_refused_at_once(
    frontend: Frontend, fields: dict[str, Any], named: list[str], stream: bool
) -> None:
    submitted = len(frontend.backend.accepted)
    for path, body in (("/v1/completions", {"prompt": "x"}), ("/v1/chat/completions", CHAT)):
        error = error_of(frontend.client.post(path, json={**body, **fields, "stream": stream}), 400)
        assert (error["code"], error["param"]) == ("no_token_left", named[0])
        names = [part.split("'")[0] for part in error["message"].split("'")[1::2]]
        assert names[: len(named)] == named
    assert len(frontend.backend.accepted) == submitted


@pytest.mark.parametrize("fields", COMPATIBLE, ids=lambda value: "-".join(value))
def test_what_fits_together_is_served(frontend: Frontend, fields: dict[str, Any]) -> None:
    answer = frontend.client.post("/v1/completions", json={"prompt": "x", "max_tokens": 4, **fields})
    assert answer.status_code == 200, answer.text


def test_a_least_length_beside_a_grammar_names_both(frontend: Frontend) -> None:
    for field in ({"min_tokens": 1}, {"ignore_eos": True}):
        body = {"prompt": "x", "guided_json": NUMBER, **field}
        message = error_of(frontend.client.post("/v1/completions", json=body), 400)["message"]
        assert all(f"'{name}'" in message for name in (*field, "guided_json"))


def request(answered: list[int], pattern: str = "", **fields: Any) -> Request:
    """With its controls' `allowed` and `bans` among the fields of its sampling."""
    allowed, bans = fields.pop("allowed", None), fields.pop("bans", [])
    if allowed or bans:
        fields["controls"] = controls(VOCAB, allowed, {}, bans)

    async def made() -> Request:  # a mailbox belongs to the task that makes it
        grammar = compiled(matched(pattern), 1 << 16) if pattern else None
        sampling = plain_sampling(seed=0, **fields)
        return Request(0, np.array([5], np.uint32), sampling, Mailbox(1), 0.0, grammar=grammar)

    found = asyncio.run(made())
    if found.answered is not None:
        found.answered += answered
    return found


def ended(asked: Request, reason: Reason = Reason.NUMERICAL_FAULT) -> ApiError:
    return contradictions.ended(asked, reason, "guided_regex" if asked.grammar else "", (EOS,))


@pytest.mark.parametrize(
    ("answered", "fields", "named"),
    [
        (
            [B],
            {"allowed": [B], "bans": [[B, B]]},
            "'allowed_token_ids' and 'bad_words' contradict each other",
        ),
        ([], {"bans": [[token] for token in range(VOCAB)]}, "'bad_words' leaves no token"),
        (
            [B],
            {"allowed": [B, EOS], "bans": [[B, B]], "min_tokens": 2},
            "'bad_words' and 'min_tokens' contradict",
        ),
        ([B], {"allowed": [B], "pattern": "BC"}, "'allowed_token_ids' and 'guided_regex' contradict"),
        ([B], {"bans": [[C]], "pattern": "BC"}, "'bad_words' and 'guided_regex' contradict"),
    ],
)
def test_an_answer_that_comes_to_a_place_without_tokens_says_why(
    answered: list[int], fields: dict[str, Any], named: str
) -> None:
    error = ended(request(answered, **fields))
    assert (error.status, error.body["error"]["code"]) == (400, "no_token_left")  # type: ignore[index]
    assert named in str(error)
    assert f"token {len(answered) + 1} of the answer" in str(error)


@pytest.mark.parametrize(
    ("answered", "fields"),
    [
        ([], {"min_tokens": 3}),
        ([B], {"allowed": [B, EOS], "min_tokens": 3}),
        ([B, B, B], {"allowed": [EOS], "min_tokens": 3}),
        ([C], {"allowed": [B], "bans": [[B, B]]}),
        ([B], {"pattern": "BC"}),
    ],
)
def test_logits_that_are_no_numbers_are_no_fault_of_the_fields(
    answered: list[int], fields: dict[str, Any]
) -> None:
    error = ended(request(answered, **fields))
    assert (error.status, error.body["error"]["code"]) == (500, "numerical_fault")  # type: ignore[index]


def test_a_dead_end_names_the_field_that_the_grammar_comes_from() -> None:
    error = ended(request([], pattern="BC", stop_ids=(B,)), Reason.GRAMMAR_DEAD_END)
    assert (error.status, error.body["error"]["code"]) == (400, "grammar_dead_end")  # type: ignore[index]
    assert "as 'guided_regex' wants" in str(error)
    assert "'stop_token_ids'" in str(error)


@pytest.mark.parametrize("stream", [False, True])
def test_the_tokens_so_far_decide(
    start_backend: StartBackend, start_frontend: StartFrontend, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """The scheduler says only that there was no token to sample."""
    backend = start_backend(script=lambda prompt: iter([B] * 9))
    frontend = start_frontend(backend)
    monkeypatch.setattr(backend, "_reason", lambda row, token: row.count == 3 and Reason.NUMERICAL_FAULT)
    body = {"prompt": "x", "allowed_token_ids": [B], "bad_words": ["BBBB"], "stream": stream}
    answer = frontend.client.post("/v1/completions", json=body)
    if not stream:
        assert "token 4 of the answer" in error_of(answer, 400)["message"]
        return
    assert answer.status_code == 200
    assert "'allowed_token_ids' and 'bad_words' contradict each other" in answer.text
    assert answer.text.endswith("data: [DONE]\n\n")
