"""return_token_ids, as vLLM answers it: the tokens that were generated, and those of the prompt."""

from __future__ import annotations

from typing import Any

import pytest
from harness import CHAT, COMPLETION, Frontend, error_of
from mock_backend import MockBackend
from sse import events

pytestmark = pytest.mark.usefixtures("kept_frontend")

PROMPTS = [[5, 6, 7], [8]]
ASKED = {"return_token_ids": True}


def ask(frontend: Frontend, path: str, body: dict[str, Any]) -> Any:
    answer = frontend.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("tokens_per_step", [1, 7])
@pytest.mark.parametrize("stop", [None, "+"])
def test_every_event_has_its_token_and_the_first_one_the_prompt(
    frontend: Frontend, tokens_per_step: int, stop: str | None
) -> None:
    frontend.backend.tokens_per_step = tokens_per_step  # it answers !"#$%&'()*+,-...
    body = {"prompt": PROMPTS, "n": 2, "max_tokens": 20, "stop": stop, "stream": True, **ASKED}
    chunks = events(frontend.client.post("/v1/completions", json=body))
    for index in range(4):
        choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert [choice["token_ids"] for choice in choices] == [[4 + n] for n in range(11 if stop else 20)]
        assert choices[0]["prompt_token_ids"] == PROMPTS[index // 2]
        assert not any("prompt_token_ids" in choice for choice in choices[1:])


def test_a_chats_first_event_has_the_prompt(frontend: Frontend, backend: MockBackend) -> None:
    body = {**CHAT, "max_tokens": 5, "stream": True, **ASKED}
    role, *chunks = events(frontend.client.post("/v1/chat/completions", json=body))
    assert role["prompt_token_ids"] == backend.accepted[0].prompt
    assert "token_ids" not in role["choices"][0]
    assert [chunk["choices"][0]["token_ids"] for chunk in chunks] == [[4], [5], [6], [7], [8]]


def test_a_whole_answer_has_all_of_them(frontend: Frontend, backend: MockBackend) -> None:
    body = {"prompt": PROMPTS, "n": 2, "max_tokens": 3, **ASKED}
    choices = ask(frontend, "/v1/completions", body)["choices"]
    assert [choice["token_ids"] for choice in choices] == [[4, 5, 6]] * 4
    assert [choice["prompt_token_ids"] for choice in choices] == [PROMPTS[i // 2] for i in range(4)]
    chat = ask(frontend, "/v1/chat/completions", {**CHAT, "max_tokens": 3, **ASKED})
    assert chat["choices"][0]["token_ids"] == [4, 5, 6]
    assert chat["prompt_token_ids"] == backend.accepted[-1].prompt


@pytest.mark.parametrize("stream", [False, True])
def test_a_token_that_ends_the_answer_is_one_of_its_own(frontend: Frontend, stream: bool) -> None:
    """Its text is not shown. The next prompt of a conversation needs it."""
    body = {**COMPLETION, "max_tokens": 9, "stop_token_ids": [7], "stream": stream, **ASKED}
    answer = frontend.client.post("/v1/completions", json=body)
    chunks = events(answer) if stream else [answer.json()]
    ids = [token for chunk in chunks for token in chunk["choices"][0]["token_ids"]]
    assert ids == [4, 5, 6, 7]
    assert chunks[-1]["choices"][0]["stop_reason"] == 7


def test_what_was_echoed_is_no_token_of_the_answer(frontend: Frontend) -> None:
    body = {"prompt": [5, 6], "max_tokens": 2, "echo": True, **ASKED}
    choice = ask(frontend, "/v1/completions", body)["choices"][0]
    assert (choice["token_ids"], choice["prompt_token_ids"]) == ([4, 5], [5, 6])
    echo, *rest = events(frontend.client.post("/v1/completions", json={**body, "stream": True}))
    assert (echo["choices"][0]["token_ids"], echo["choices"][0]["prompt_token_ids"]) == ([], [5, 6])
    assert [chunk["choices"][0]["token_ids"] for chunk in rest] == [[4], [5]]


@pytest.mark.parametrize("asked", [{}, {"return_token_ids": False}, {"return_token_ids": None}])
def test_nobody_gets_them_without_asking(frontend: Frontend, asked: dict[str, Any]) -> None:
    for path, body in (("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)):
        assert "token_ids" not in frontend.client.post(path, json={**body, **asked}).text
        assert "token_ids" not in frontend.client.post(path, json={**body, **asked, "stream": True}).text


def test_the_type_is_checked(frontend: Frontend) -> None:
    error = error_of(frontend.client.post("/v1/completions", json={**COMPLETION, "return_token_ids": 1}), 400)
    assert (error["param"], error["code"]) == ("return_token_ids", "invalid_type")
