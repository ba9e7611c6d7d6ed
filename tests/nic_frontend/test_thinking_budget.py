"""A budget of tokens to think: a model that has used it is made to conclude, and answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from harness import CHAT, Frontend, Speak, error_of
from sse import events, finish_reasons, text_of
from templates import DEEPSEEK, HERMES, LLAMA
from tiny_model import build_tokenizer
from typed_sse import typed_events

from ringbuffer.grammar import accepts, unpack

TOKENIZER = build_tokenizer()
BUDGET = 20
CONCLUSION = TOKENIZER.encode("\n</think>\n\n").ids


def thinks_for_ever(tokens: list[int]) -> Iterator[int]:
    """Until it was made to conclude."""
    text = TOKENIZER.decode(tokens, skip_special_tokens=False)
    if text.endswith("\n</think>\n\n"):
        yield from TOKENIZER.encode("It rains.").ids
        return
    yield from TOKENIZER.encode("<think>").ids
    while True:
        yield from TOKENIZER.encode("hm ").ids


@pytest.fixture(params=[1, 7, 200])
def frontend(speak: Speak, request: pytest.FixtureRequest) -> Frontend:
    frontend = speak(HERMES, "")
    frontend.backend.script = thinks_for_ever
    frontend.backend.tokens_per_step = request.param
    return frontend


def ask(frontend: Frontend, **changes: Any) -> Any:
    body = {**CHAT, "max_tokens": 200, "thinking_token_budget": BUDGET, "return_token_ids": True, **changes}
    answer = frontend.client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer


def check(prompt: list[int], tokens: list[int], usage: dict[str, Any], choices: int) -> None:
    rains = TOKENIZER.encode("It rains.").ids
    assert tokens[BUDGET:] == [*CONCLUSION, *rains, 1]
    assert usage["completion_tokens"] == choices * len(tokens)
    assert usage["prompt_tokens"] == len(prompt)
    thought = usage["completion_tokens_details"]["reasoning_tokens"]
    assert choices * BUDGET <= thought <= choices * (BUDGET + len(CONCLUSION))


def test_whole(frontend: Frontend) -> None:
    found = ask(frontend, n=2).json()
    for choice in found["choices"]:
        assert choice["message"]["content"] == "It rains."
        assert choice["message"]["reasoning_content"].startswith("hm hm")
        assert choice["finish_reason"] == "stop"
        check(found["prompt_token_ids"], choice["token_ids"], found["usage"], 2)
    assert {
        row.prompt[: len(found["prompt_token_ids"])] == found["prompt_token_ids"]
        for row in frontend.backend.accepted
    } == {True}


def test_streamed(frontend: Frontend) -> None:
    chunks = events(
        ask(frontend, stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True})
    )
    assert text_of(chunks) == "It rains."
    assert finish_reasons(chunks) == {0: "stop"}
    tokens = [
        token for chunk in chunks for choice in chunk["choices"] for token in choice.get("token_ids", ())
    ]
    check(chunks[0]["prompt_token_ids"], tokens, chunks[-1]["usage"], 1)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == [*range(len(tokens) + 1), len(tokens)]


@pytest.mark.parametrize("stop", ["hm rain", "m hm hm x", " hm hm hm hm y"])
def test_thoughts_that_may_begin_a_stop_string_are_shown(frontend: Frontend, stop: str) -> None:
    """They are held back where the model is made to conclude."""
    thought = ask(frontend).json()["choices"][0]["message"]["reasoning_content"]
    whole = ask(frontend, stop=[stop]).json()["choices"][0]["message"]
    assert (whole["reasoning_content"], whole["content"]) == (thought, "It rains.")
    chunks = events(ask(frontend, stop=[stop], stream=True))
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == thought
    assert text_of(chunks) == "It rains."


def test_anthropic(frontend: Frontend) -> None:
    body = {**CHAT, "max_tokens": 200, "thinking": {"type": "enabled", "budget_tokens": BUDGET}}
    found = frontend.client.post("/v1/messages", json=body).json()
    assert [block["type"] for block in found["content"]] == ["thinking", "text"]
    assert found["content"][1]["text"] == "It rains."
    streamed = typed_events(frontend.client.post("/v1/messages", json={**body, "stream": True}))
    assert streamed[-2]["usage"] == found["usage"]


def test_no_room_to_answer(frontend: Frontend) -> None:
    found = ask(frontend, max_tokens=BUDGET + 2).json()
    assert found["choices"][0]["finish_reason"] == "length"
    assert found["choices"][0]["message"]["content"] == ""
    assert len(frontend.backend.accepted) == 1


def test_the_form_of_an_answer_holds_behind_its_thoughts(frontend: Frontend) -> None:
    """The second request goes on behind the thoughts, and so does its grammar."""
    ask(frontend, structured_outputs={"regex": "It rains[.]"})
    first, second = (unpack(row.grammar) for row in frontend.backend.accepted)
    assert accepts(first, b"<think>hm</think>It rains.")
    assert accepts(second, b"It rains.")
    assert not accepts(second, b"<think>hm</think>It rains.")


def test_slots_come_back(frontend: Frontend) -> None:
    for _ in range(40):
        ask(frontend, n=4)
    assert frontend.service.tracker.n_open == 0


def test_who_thinks_less_is_not_disturbed(speak: Speak) -> None:
    frontend = speak(HERMES, "<think>Hm.</think>It rains.")
    assert ask(frontend).json()["choices"][0]["message"]["content"] == "It rains."
    assert len(frontend.backend.accepted) == 1
    quiet = ask(frontend, reasoning_effort="none").json()
    assert quiet["choices"][0]["finish_reason"] == "stop"


def test_no_limit(speak: Speak) -> None:
    """As vLLM writes it; it says nothing, so other models take it as well."""
    for template in (HERMES, LLAMA):
        frontend = speak(template, "<think>" + "hm " * BUDGET + "</think>It rains.")
        content = ask(frontend, thinking_token_budget=-1).json()["choices"][0]["message"]["content"]
        assert content.endswith("It rains.")
        assert len(frontend.backend.accepted) == 1


def test_nothing_to_think(frontend: Frontend) -> None:
    """A model that begins to is made to conclude at once."""
    found = ask(frontend, thinking_token_budget=0).json()["choices"][0]
    assert found["message"]["content"] == "It rains."
    assert not found["message"]["reasoning_content"]


def test_nothing_to_think_where_the_prompt_has_begun_it(speak: Speak) -> None:
    frontend = speak(DEEPSEEK, "")
    frontend.backend.script = thinks_for_ever
    message = ask(frontend, thinking_token_budget=0).json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "It rains.", "refusal": None}
    (asked,) = frontend.backend.accepted
    assert TOKENIZER.decode(asked.prompt, skip_special_tokens=False).endswith("<think>\n\n</think>\n\n")


def test_what_is_no_budget(speak: Speak) -> None:
    body = {**CHAT, "thinking_token_budget": -2}
    error = error_of(speak(HERMES, "x").client.post("/v1/chat/completions", json=body), 400)
    assert error["message"] == "'thinking_token_budget' must be at least -1, it is -2"


def test_models_that_do_not_think(speak: Speak) -> None:
    body = {**CHAT, "thinking_token_budget": BUDGET}
    error = error_of(speak(LLAMA, "x").client.post("/v1/chat/completions", json=body), 400)
    assert error["param"] == "thinking_token_budget"
