"""stream_options.continuous_usage_stats, as vLLM answers it: each event has its choice's usage so far."""

from __future__ import annotations

from typing import Any

import pytest
from harness import CHAT, COMPLETION, Frontend, error_of
from sse import events

pytestmark = pytest.mark.usefixtures("kept_frontend")

CONTINUOUS = {"include_usage": True, "continuous_usage_stats": True}


def ask(frontend: Frontend, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    return events(frontend.client.post(path, json={**body, "stream": True}))


def used(prompt: int, completion: int, cached: int = 0) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


@pytest.mark.parametrize("tokens_per_step", [1, 7])
@pytest.mark.parametrize("stop", [None, "+"])
def test_every_event_counts_its_choice(frontend: Frontend, tokens_per_step: int, stop: str | None) -> None:
    frontend.backend.tokens_per_step = tokens_per_step  # it answers !"#$%&'()*+,-...
    prompts = [[5, 6, 7], [8]]
    n_tokens = 11 if stop else 20
    body = {"prompt": prompts, "n": 2, "max_tokens": 20, "stop": stop, "stream_options": CONTINUOUS}
    *chunks, last = ask(frontend, "/v1/completions", body)
    for index in range(4):
        found = [chunk["usage"] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert found == [used(len(prompts[index // 2]), n) for n in range(1, n_tokens + 1)]
    assert last["choices"] == []
    assert last["usage"] == used(3 + 1, 4 * n_tokens)


def test_what_comes_before_the_first_token_counts_none(frontend: Frontend) -> None:
    role, *chunks, last = ask(frontend, "/v1/chat/completions", {**CHAT, "stream_options": CONTINUOUS})
    prompt = last["usage"]["prompt_tokens"]
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert role["usage"] == used(prompt, 0)
    assert [chunk["usage"] for chunk in chunks] == [used(prompt, 1), used(prompt, 2)]
    echo, *_ = ask(
        frontend, "/v1/completions", {"prompt": [5, 6], "echo": True, "stream_options": CONTINUOUS}
    )
    assert echo["usage"] == used(2, 0)


@pytest.mark.parametrize("options", [{}, {"include_usage": False}])
def test_it_needs_include_usage(frontend: Frontend, options: dict[str, bool]) -> None:
    asked = {**options, "continuous_usage_stats": True}
    chunks = ask(frontend, "/v1/completions", {**COMPLETION, "stream_options": asked})
    assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)


@pytest.mark.parametrize("asked", [None, {}, {"include_usage": False}])
def test_options_that_ask_for_nothing_need_no_stream(frontend: Frontend, asked: Any) -> None:
    body = {**COMPLETION, "stream_options": asked}
    assert frontend.client.post("/v1/completions", json=body).status_code == 200
    body = {**COMPLETION, "stream_options": {"include_usage": True}}
    assert frontend.client.post("/v1/completions", json=body).status_code == 400


def test_its_type_is_checked(frontend: Frontend) -> None:
    body = {**COMPLETION, "stream": True, "stream_options": {"continuous_usage_stats": 1}}
    error = error_of(frontend.client.post("/v1/completions", json=body), 400)
    assert error["code"] == "invalid_type"
