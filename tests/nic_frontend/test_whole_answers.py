"""Answers that nobody sees before their end: how often they cost their handler a turn, and that what may end
one early is seen at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness import CHAT, COMPLETION, Frontend, Speak, wait_until
from silence import silence_behind
from templates import HERMES
from test_thinking_budget import BUDGET, CONCLUSION
from test_tools import BODY, CALL
from tiny_model import build_tokenizer

from nic_frontend.ring.request import Arrival, Mailbox

TOKENS = 200
MESSAGES = {"model": "tiny", "messages": CHAT["messages"], "max_tokens": TOKENS}


def ids(text: str) -> list[int]:
    return list(build_tokenizer().encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {**COMPLETION, "max_tokens": TOKENS}),
        ("/v1/completions", {**COMPLETION, "max_tokens": TOKENS, "n": 2, "logprobs": 1}),
        ("/v1/chat/completions", {**CHAT, "max_tokens": TOKENS}),
        ("/v1/messages", MESSAGES),
        ("/v1/responses", {"input": "hi", "max_output_tokens": TOKENS}),
    ],
)
def test_the_handler_is_not_woken_for_each_token(
    kept_frontend: Frontend, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    taken: list[int] = []
    take = Mailbox.take

    async def counted(mailbox: Mailbox) -> list[Arrival]:
        arrivals = await take(mailbox)
        taken.append(sum(len(arrival.tokens) for arrival in arrivals))
        return arrivals

    monkeypatch.setattr(Mailbox, "take", counted)
    answer = kept_frontend.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    n = int(body.get("n", 1))
    assert sum(taken) == n * TOKENS
    # Some 64 at a time; fewer where more have come while it was at work, as on a slow machine.
    assert len(taken) <= n * TOKENS // 4


def test_a_stop_string_is_seen_at_once(speak: Speak) -> None:
    frontend = speak(HERMES, "")
    with silence_behind(frontend.backend, ids("one two three")):
        body = {**BODY, "tools": [], "stop": ["thr"]}
        answer = frontend.client.post("/v1/chat/completions", json=body).json()
    assert answer["choices"][0]["message"]["content"] == "one two "


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_the_only_call_is_seen_at_once(speak: Speak, path: str) -> None:
    frontend = speak(HERMES, "")
    body: dict[str, Any] = {**BODY, "parallel_tool_calls": False}
    if path == "/v1/responses":
        tool = {**BODY["tools"][0]["function"], "type": "function"}
        body = {"input": "hi", "tools": [tool], "parallel_tool_calls": False}
    with silence_behind(frontend.backend, ids(CALL)):
        answer = frontend.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert '"weather"' in answer.text


def test_thinking_ends_at_its_budget(speak: Speak) -> None:
    """Though the model would say nothing more."""
    frontend = speak(HERMES, "")
    backend = frontend.backend
    with ThreadPoolExecutor() as pool:
        with silence_behind(backend, ids("<think>" + "hm " * 30)):
            thinks = backend.script

            def script(prompt: list[int]) -> Iterator[int]:
                return iter(ids("It rains.")) if prompt[-len(CONCLUSION) :] == CONCLUSION else thinks(prompt)

            backend.script = script
            body = {**CHAT, "thinking_token_budget": BUDGET, "max_tokens": 200}
            asked = pool.submit(frontend.client.post, "/v1/chat/completions", json=body)
            wait_until(lambda: len(backend.accepted) == 2, what="the request behind the thinking")
        assert asked.result().json()["choices"][0]["message"]["content"] == "It rains."
