"""Conversations as OpenAI's library gets them, and which model directories are served in harmony."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from openai_harmony import Message
from tiny_model import VOCAB_SIZE, write_model

from nic_frontend.errors import ApiError
from nic_frontend.harmony import chosen
from nic_frontend.harmony.marks import IDS
from nic_frontend.harmony.prompts import HarmonyPrompts
from nic_frontend.templates.process import Segments
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
    """In the place of the library's, which needs the vocabulary. A message's token is its place."""

    def __init__(self) -> None:
        self.rendered: list[dict[str, Any]] = []

    def render(self, message: Message, options: Any = None) -> list[int]:
        self.rendered.append(json.loads(message.to_json()))
        return [IDS["<|start|>"], len(self.rendered) - 1, IDS["<|message|>"], IDS["<|end|>"]]

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]


def written(messages: list[dict[str, Any]], end: PromptEnd, **more: Any) -> tuple[Encoding, Segments]:
    encoding = Encoding()
    return encoding, HarmonyPrompts(encoding).render(messages, end, more.pop("options", {}), **more)


def said(*messages: dict[str, Any], tools: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """The messages behind the system's, with what they say."""
    encoding, (_, *segments) = written(list(messages), PromptEnd.ANSWER, tools=tools)
    assert segments.pop() == [IDS["<|start|>"], *map(ord, "assistant")]
    found: list[dict[str, Any]] = []
    for segment in segments:
        if isinstance(segment, str):
            found[-1]["text"] = segment
        elif segment[0] == IDS["<|start|>"]:
            found.append(dict(encoding.rendered[segment[1]]))
        else:
            assert segment == [IDS["<|end|>"]]
    return found


def shown(*messages: dict[str, Any]) -> list[tuple[str | None, ...]]:
    """Who says what, where, and to whom."""
    return [
        (made["name"] or made["role"], made.get("channel"), made.get("recipient"), made["text"])
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
    assert first["text"] == "# Instructions\n\nBe brief.\n\n"
    assert first["content"][0]["tools"]["functions"]["tools"] == [{"name": "f", "description": ""}]
    assert (later["role"], later["text"]) == ("developer", "# Instructions\n\nIn German.")
    assert [made["role"] for made in said(USER)] == ["user"]


def test_ends_of_prompts() -> None:
    begun = [USER, {"role": "assistant", "content": "ab", "reasoning_content": "Hm."}]
    _, closed = written(begun, PromptEnd.CLOSED)
    assert closed[-2:] == ["ab", [IDS["<|end|>"]]]
    _, within = written(begun, PromptEnd.WITHIN)
    final = [IDS["<|channel|>"], *map(ord, "final"), IDS["<|message|>"]]
    assert within[-5:] == ["Hm.", [IDS["<|end|>"]], [IDS["<|start|>"], *map(ord, "assistant")], final, "ab"]


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
    encoding, _ = written([USER], PromptEnd.ANSWER, options=options)
    (system,) = encoding.rendered[0]["content"]
    assert system["reasoning_effort"] == shows
    assert options.get("model_identity", "You are ChatGPT") in system["model_identity"]
    assert system["conversation_start_date"]


@pytest.mark.parametrize(
    ("message", "tools", "why"),
    [
        ({**USER, "content": "a\ud800"}, None, "surrogate"),
        (call("f" * 129), None, "name of more than 128 characters"),
        (USER, [{"function": {**TOOL["function"], "description": "a" * 1001}}], "a word of more than 1000"),
    ],
)
def test_what_the_library_would_not_take(message: dict[str, Any], tools: Any, why: str) -> None:
    with pytest.raises(ApiError, match=why):
        written([message], PromptEnd.ANSWER, tools=tools)


@pytest.mark.parametrize(
    "options", [{"reasoning_effort": "much"}, {"reasoning_effort": []}, {"model_identity": 5}]
)
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match=next(iter(options))):
        written([USER], PromptEnd.ANSWER, options=options)


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
