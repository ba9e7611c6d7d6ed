"""truncate_prompt_tokens: the end of a prompt that is too long."""

from __future__ import annotations

import pytest
from harness import CHAT, Frontend, error_of

pytestmark = pytest.mark.usefixtures("kept_frontend")


@pytest.mark.parametrize(("limit", "left"), [(3, 3), (600, 600), (-1, 507)])
def test_the_end_is_kept(frontend: Frontend, limit: int, left: int) -> None:
    tokens = [5 + i % 300 for i in range(600)]
    body = {"prompt": tokens, "max_tokens": 5, "truncate_prompt_tokens": limit}
    answer = frontend.client.post("/v1/completions", json=body)
    if left == 600:
        assert error_of(answer, 400)["code"] == "context_length_exceeded"
        return
    assert answer.status_code == 200, answer.text
    assert frontend.backend.accepted[-1].prompt == tokens[-left:]
    assert answer.json()["usage"]["prompt_tokens"] == left


@pytest.mark.parametrize(
    ("limit", "side", "left"),
    [(3, "right", slice(3)), (3, "left", slice(-3, None)), (-1, "right", slice(507))],
)
def test_the_side_that_is_cut(frontend: Frontend, limit: int, side: str, left: slice) -> None:
    tokens = [5 + i % 300 for i in range(600)]
    body = {"prompt": tokens, "max_tokens": 5, "truncate_prompt_tokens": limit, "truncation_side": side}
    assert frontend.client.post("/v1/completions", json=body).status_code == 200
    assert frontend.backend.accepted[-1].prompt == tokens[left]


def test_chats_and_echoes(frontend: Frontend) -> None:
    assert (
        frontend.client.post("/v1/chat/completions", json={**CHAT, "truncate_prompt_tokens": 2}).json()[
            "usage"
        ]["prompt_tokens"]
        == 2
    )
    body = {"prompt": [36, 37, 38], "max_tokens": 1, "truncate_prompt_tokens": 2, "echo": True}
    assert frontend.client.post("/v1/completions", json=body).json()["choices"][0]["text"] == "BC!"


@pytest.mark.parametrize("limit", [0, -2, "x", 1.5])
def test_what_is_no_limit(frontend: Frontend, limit: object) -> None:
    answer = frontend.client.post("/v1/completions", json={"prompt": "x", "truncate_prompt_tokens": limit})
    assert error_of(answer, 400)["param"] == "truncate_prompt_tokens"
