"""Conversations as OpenAI's library gets them, and which model directories are served in harmony."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from openai_harmony import Conversation, Role
from tiny_model import VOCAB_SIZE, write_model

from nic_frontend.errors import ApiError
from nic_frontend.harmony import chosen
from nic_frontend.harmony.marks import IDS
from nic_frontend.harmony.prompts import HarmonyPrompts
from nic_frontend.templates.prompt_end import PromptEnd
from nic_frontend.templates.renderer import Bounds
from nic_frontend.text.tokenizer import Tokenizer

BOUNDS = Bounds(time_s=5, memory_bytes=1 << 30, most_text=1 << 20)
USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def call(name: str, text: str = "", thought: str = "") -> dict[str, Any]:
    function = {"name": name, "arguments": {"city": "Köln"}}
    return {
        "role": "assistant", "content": text, "reasoning_content": thought,
        "tool_calls": [{"id": "c", "type": "function", "function": function}],
    }  # fmt: skip


def result(name: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "c", "name": name, "content": "rain"}


class Encoding:
    """In the place of the library's, which needs the vocabulary: keeps what it gets."""

    talk: Conversation

    def render_conversation(self, talk: Conversation, config: Any) -> list[int]:
        assert not config.auto_drop_analysis
        self.talk = talk
        return [1]

    def render_conversation_for_completion(self, talk: Conversation, role: Role, config: Any) -> list[int]:
        assert role is Role.ASSISTANT
        return [*self.render_conversation(talk, config), 2]

    def encode(self, text: str, disallowed_special: Any) -> list[int]:
        assert disallowed_special == ()
        return [ord(character) for character in text]


def said(*messages: dict[str, Any], tools: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """The conversation behind the system's message."""
    encoding = Encoding()
    HarmonyPrompts(encoding).render(list(messages), PromptEnd.ANSWER, {}, tools)
    system, *rest = json.loads(encoding.talk.to_json())["messages"]
    assert system["role"] == "system"
    return rest


def shown(*messages: dict[str, Any]) -> list[tuple[str | None, ...]]:
    """Who says what, where, and to whom."""
    return [
        (made["name"] or made["role"], made.get("channel"), made.get("recipient"), made["content"][0]["text"])
        for made in said(*messages)
    ]


def test_an_assistants_turn() -> None:
    assert shown(USER, call("f", "One moment.", "Hm."), result("f")) == [
        ("user", None, None, "hi"),
        ("assistant", "analysis", None, "Hm."),
        ("assistant", "commentary", None, "One moment."),
        ("assistant", "commentary", "functions.f", '{"city": "Köln"}'),
        ("functions.f", "commentary", "assistant", "rain"),
    ]


def test_thoughts_end_with_a_final_answer() -> None:
    answered = {"role": "assistant", "content": "Rain.", "reasoning_content": "So."}
    talk = [
        USER,
        call("f", thought="Hm."),
        result("f"),
        answered,
        USER,
        call("g", thought="Again."),
        result("g"),
    ]
    thoughts = [text for _, channel, _, text in shown(*talk) if channel == "analysis"]
    assert thoughts == ["Again."]
    assert ("assistant", "final", None, "Rain.") in shown(*talk)


def test_instructions_and_tools_are_the_developers() -> None:
    system, developer = (
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "In German."},
    )
    first, _, later = said(system, USER, developer, tools=[TOOL])
    assert first["content"][0]["instructions"] == "Be brief."
    assert first["content"][0]["tools"]["functions"]["tools"] == [{"name": "f", "description": ""}]
    assert (later["role"], later["content"][0]["instructions"]) == ("developer", "In German.")
    assert [made["role"] for made in said(USER)] == ["user"]


def test_ends_of_prompts() -> None:
    prompts = HarmonyPrompts(Encoding())
    begun = [USER, {"role": "assistant", "content": "ab"}]
    assert prompts.render(begun, PromptEnd.CLOSED, {}) == [1]
    final = [IDS["<|channel|>"], *map(ord, "final"), IDS["<|message|>"]]
    assert prompts.render(begun, PromptEnd.WITHIN, {}) == [1, 2, *final, ord("a"), ord("b")]
    encoding = Encoding()
    thought = {**begun[1], "reasoning_content": "Hm."}
    HarmonyPrompts(encoding).render([USER, thought], PromptEnd.WITHIN, {})
    assert [message.channel for message in encoding.talk.messages] == [None, None, "analysis"]
    with pytest.raises(ApiError, match="surrogate"):
        prompts.render([USER, {"role": "assistant", "content": "a\ud800"}], PromptEnd.WITHIN, {})


@pytest.mark.parametrize(
    ("options", "shows"),
    [
        ({}, "Medium"),
        ({"reasoning_effort": "low"}, "Low"),
        ({"reasoning_effort": "minimal"}, "Low"),
        ({"reasoning_effort": "high", "model_identity": "You are Mia."}, "High"),
    ],
)
def test_efforts_and_the_models_name(options: dict[str, str], shows: str) -> None:
    encoding = Encoding()
    HarmonyPrompts(encoding).render([USER], PromptEnd.ANSWER, options)
    system = encoding.talk.messages[0].content[0]
    assert system.reasoning_effort == shows
    assert system.model_identity == options.get("model_identity", system.model_identity)
    assert system.conversation_start_date


@pytest.mark.parametrize(
    "options", [{"reasoning_effort": "much"}, {"reasoning_effort": []}, {"model_identity": 5}]
)
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match=next(iter(options))):
        HarmonyPrompts(Encoding()).render([USER], PromptEnd.ANSWER, options)


# ---------------------------------------------------------------- which models


def test_a_gpt_oss_model_with_a_vocabulary_of_its_own_is_served_like_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_model(tmp_path, name="gpt_oss")
    with caplog.at_level(logging.WARNING):
        assert not chosen.speaks_harmony(tmp_path, Tokenizer(tmp_path, VOCAB_SIZE))
    assert "its vocabulary is not o200k_harmony" in caplog.text
    write_model(tmp_path, name="llama")
    caplog.clear()
    assert not chosen.speaks_harmony(tmp_path, Tokenizer(tmp_path, VOCAB_SIZE))
    assert "harmony" not in caplog.text


def test_what_does_not_go_with_harmony(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="leave out hermes"):
        chosen.open_harmony(tmp_path, BOUNDS, ("hermes", "auto"))
    monkeypatch.setattr(chosen, "LIBRARY", "no_such_library")
    with pytest.raises(ValueError, match="need OpenAI's library openai-harmony"):
        chosen.open_harmony(tmp_path, BOUNDS, ("auto", "auto"))
