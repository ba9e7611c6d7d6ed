"""Conversations as agents write them, through templates that take only some orders of roles."""

from __future__ import annotations

from typing import Any

import pytest
from templates import DEEPSEEK, GEMMA, HERMES, LLAMA, MISTRAL, STRICT_MISTRAL
from tiny_model import TEMPLATE

from nic_frontend.chat_template import ChatTemplate, TemplateSource

CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": {}}}
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "name": "weather", "content": "rain"}
# As DeepSeek-R1's: of several messages of the system it shows the last one, and that first.
LAST_SYSTEM = """
{%- set told = namespace(text="") %}
{%- for message in messages if message.role == "system" %}{% set told.text = message.content %}{% endfor %}
{{- told.text }}
{%- for message in messages if message.role != "system" %}
{{ message.role }}: {{ message.content }}
{%- endfor %}"""


def said(*turns: str) -> list[dict[str, Any]]:
    """Messages, written like `user: Hi`."""
    return [dict(zip(("role", "content"), turn.split(": "), strict=True)) for turn in turns]


def render(source: str, *messages: dict[str, Any]) -> str:
    return ChatTemplate(TemplateSource(source, {})).render(list(messages), True, {})


# What Codex begins with, and what it and others add later.
AGENT = (
    "system: Be brief.",
    "developer: No network.",
    "user: AGENTS.md",
    "user: Hi",
    "assistant: Hello.",
    "developer: No files.",
    "user: Weather?",
    "assistant: Let me",
    "assistant: see.",
    "user: Well?",
)
ALTERNATING = (
    "system: Be brief.\n\nNo network.",
    "user: AGENTS.md\n\nHi",
    "assistant: Hello.",
    "user: No files.\n\nWeather?",
    "assistant: Let me\n\nsee.",
    "user: Well?",
)
ONE_SYSTEM = (ALTERNATING[0], *AGENT[2:5], "user: No files.", *AGENT[6:])


@pytest.mark.parametrize(
    ("template", "equal"), [(GEMMA, ALTERNATING), (TEMPLATE, ONE_SYSTEM), (LAST_SYSTEM, ONE_SYSTEM)]
)
def test_what_a_template_does_not_take_is_combined(template: str, equal: tuple[str, ...]) -> None:
    text = render(template, *said(*AGENT))
    assert text == render(template, *said(*equal))
    for turn in AGENT:
        assert turn.split(": ")[1] in text


@pytest.mark.parametrize("template", [HERMES, LLAMA, DEEPSEEK, MISTRAL])
def test_what_a_template_takes_stays_as_it_is(template: str) -> None:
    messages = [{**turn, "role": turn["role"].replace("developer", "system")} for turn in said(*AGENT)]
    plain = ChatTemplate(TemplateSource(template, {}))._render(messages, None, True, {})
    assert render(template, *said(*AGENT)) == plain


def test_the_system_behind_the_user(speak: Any) -> None:
    assert render(TEMPLATE, *said("user: Hi", "system: Hurry.")) == render(
        TEMPLATE, *said("user: Hi\n\nHurry.")
    )


def test_the_system_alone() -> None:
    """It has no place of its own in some templates, which then show nothing."""
    alone = said("system: Be brief.", "developer: Say hello.")
    assert render(GEMMA, *alone) == render(GEMMA, *said("user: Be brief.\n\nSay hello."))
    assert render(HERMES, *alone).startswith("<|im_start|>system\nBe brief.")


def test_thoughts_of_answers_that_become_one() -> None:
    template = GEMMA.replace("message.content }}", "message.content }}{{ message.reasoning_content }}")
    first, second = said("assistant: Let me", "assistant: see.")
    for thoughts in (("One.", "Two."), ("One.", ""), ("", "Two.")):
        answers = [
            {**answer, "reasoning_content": thought} if thought else answer
            for answer, thought in zip((first, second), thoughts, strict=True)
        ]
        text = render(template, *said("user: Hi"), *answers)
        assert "Let me\n\nsee." + "\n\n".join(filter(None, thoughts)) + "<end_of_turn>" in text


def test_behind_results() -> None:
    """Where a user's turn has no place, its text is behind that of the last result."""
    talk = [*said("system: Be brief.", "user: Hi"), CALLING, RESULT]
    for more in said("user: Hurry.", "system: Hurry."):
        text = render(STRICT_MISTRAL, *talk, more)
        assert text == render(STRICT_MISTRAL, *talk[:-1], {**RESULT, "content": "rain\n\nHurry."})
        assert text.startswith(render(STRICT_MISTRAL, *talk[:-1]))
        assert f"{more['role']}" in render(HERMES, *talk, more).rpartition("rain")[2]


def test_text_and_calls_stay_two_messages() -> None:
    text = render(LLAMA, *said("user: Hi", "assistant: Let me see."), CALLING, RESULT)
    assert text.index("Let me see.") < text.index("weather") < text.index("rain")


def test_what_no_order_mends_is_refused() -> None:
    with pytest.raises(Exception, match="roles must alternate"):
        render(GEMMA, *said("assistant: Hi"))
