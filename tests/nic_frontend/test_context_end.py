"""Prompts that nearly fill the context, and answers that get what is left of it."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Frontend, StartBackend, StartFrontend, error_of

CONTEXT = 512  # of the mock backend

pytestmark = pytest.mark.usefixtures("kept_frontend")


def complete(frontend: Frontend, n_tokens: int, **fields: Any) -> Any:
    return frontend.client.post("/v1/completions", json={"prompt": [78] * n_tokens, **fields})


@pytest.mark.parametrize(
    ("n_tokens", "answer"), [(10, 16), (496, 16), (497, 15), (504, 8), (511, 1)], ids=lambda n: str(n)
)
def test_a_completion_that_says_nothing_gets_what_fits_of_16(
    frontend: Frontend, n_tokens: int, answer: int
) -> None:
    body = complete(frontend, n_tokens, n=2).json()
    assert [choice["finish_reason"] for choice in body["choices"]] == ["length", "length"]
    assert body["usage"]["completion_tokens"] == 2 * answer
    assert frontend.backend.accepted[-1].descriptor["max_tokens"] == answer


def test_each_prompt_of_one_request_gets_what_fits_beside_it(frontend: Frontend) -> None:
    prompts = [[78] * 10, [78] * 508]
    answer = frontend.client.post("/v1/completions", json={"prompt": prompts, "max_tokens": None})
    assert answer.status_code == 200, answer.text
    assert sorted(row.descriptor["max_tokens"] for row in frontend.backend.accepted[-2:]) == [4, 16]


def test_who_names_a_length_that_does_not_fit_is_refused(frontend: Frontend) -> None:
    error = error_of(complete(frontend, 504, max_tokens=16), 400)
    assert (error["param"], error["code"]) == ("max_tokens", "context_length_exceeded")
    assert "at most 8 fit" in error["message"]


@pytest.mark.parametrize("fields", [{}, {"max_tokens": 1}, {"max_tokens": 0, "echo": True}])
def test_where_nothing_fits_the_answer_says_so(frontend: Frontend, fields: dict[str, Any]) -> None:
    error = error_of(complete(frontend, CONTEXT, **fields), 400)
    assert (error["param"], error["code"]) == ("prompt", "context_length_exceeded")
    assert "'prompt' has 512; at most 511 leave room for an answer" in error["message"]


@pytest.mark.parametrize("max_tokens", [0, 1])
def test_a_scored_prompt_may_leave_room_for_one_token(frontend: Frontend, max_tokens: int) -> None:
    """As evaluation harnesses ask for log-probabilities of a prompt."""
    answer = complete(frontend, CONTEXT - 1, max_tokens=max_tokens, echo=True, logprobs=1)
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["choices"][0]["logprobs"]["tokens"]) == CONTEXT - 1 + max_tokens


@pytest.mark.parametrize(
    ("fields", "left"),
    [({}, CONTEXT - 16), ({"max_tokens": 5}, CONTEXT - 5), ({"max_tokens": 0}, CONTEXT - 1)],
)
def test_a_prompt_that_is_cut_leaves_room_for_the_answer(
    frontend: Frontend, fields: dict[str, Any], left: int
) -> None:
    answer = complete(frontend, 600, truncate_prompt_tokens=-1, echo=True, **fields)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["prompt_tokens"] == left


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (
            {"min_tokens": 9},
            "the 8 tokens that the answer may have: 'max_tokens' was left out, and no more fit",
        ),
        ({"min_tokens": 9, "max_tokens": 8}, "the 8 tokens that the answer may have: 'max_tokens' is 8"),
    ],
)
def test_a_least_length_that_does_not_fit_is_refused(
    frontend: Frontend, fields: dict[str, Any], why: str
) -> None:
    error = error_of(complete(frontend, 504, **fields), 400)
    assert error["param"] == "min_tokens"
    assert error["message"] == f"'min_tokens' is 9, more than {why}"


def test_the_default_length_is_named_where_a_least_length_exceeds_it(frontend: Frontend) -> None:
    error = error_of(complete(frontend, 10, min_tokens=17), 400)
    assert error["message"].endswith("'max_tokens' is 16 where it is left out")


def test_a_context_shorter_than_the_default(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    frontend = start_frontend(start_backend(max_context=8))
    assert complete(frontend, 3).json()["usage"]["completion_tokens"] == 5
    cut = complete(frontend, 30, truncate_prompt_tokens=-1).json()["usage"]
    assert (cut["prompt_tokens"], cut["completion_tokens"]) == (1, 7)
