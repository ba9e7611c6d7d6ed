"""Conversations as agents write them, through templates that take only some orders of roles."""

from __future__ import annotations

from typing import Any

import pytest
from templates import (
    DEEPSEEK,
    GEMMA,
    HERMES,
    LLAMA,
    MISTRAL,
    NO_SYSTEM,
    STRICT_MISTRAL,
    SYSTEM_AT_THE_END,
)
from tiny_model import TEMPLATE

from nic_frontend.templates.chat_template import ChatTemplate, TemplateSource
from nic_frontend.templates.prompt_end import PromptEnd

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
    return ChatTemplate(TemplateSource(source, {})).render(list(messages), PromptEnd.ANSWER, {})


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


def test_the_system_behind_the_user() -> None:
    assert render(TEMPLATE, *said("user: Hi", "system: Hurry.")) == render(
        TEMPLATE, *said("user: Hi\n\nHurry.")
    )


def test_the_system_alone() -> None:
    """It has no place of its own in some templates, which then show nothing."""
    alone = said("system: Be brief.", "developer: Say hello.")
    assert render(GEMMA, *alone) == render(GEMMA, *said("user: Be brief.\n\nSay hello."))
    assert render(HERMES, *alone).startswith("<|im_start|>system\nBe brief.")


def test_the_system_where_it_has_no_role() -> None:
    """Templates that refuse it, and one that leaves it out."""
    for template in (
        NO_SYSTEM,
        "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}",
    ):
        for more in ((), ("assistant: Hello.", "user: Weather?")):
            text = render(template, *said("system: Be brief.", "developer: Be kind.", "user: Hi", *more))
            assert text == render(template, *said("user: Be brief.\n\nBe kind.\n\nHi", *more))
        begun = ("assistant: Hello.", "user: Weather?")
        text = render(template, *said("system: Be brief.", *begun))
        assert text == render(template, *said("user: Be brief.", *begun))


def test_the_system_that_is_shown_beside_the_user_at_the_end() -> None:
    """It stays there, unless the template would lose it: then it is shown where such a conversation began."""
    begin = said("system: Be brief.", "user: Hi")
    talk = [*begin, *said("assistant: Hello.", "user: Weather?")]
    assert render(SYSTEM_AT_THE_END, *talk) == "[user]Hi[assistant]Hello.[user]Be brief.\n\nWeather?"
    shown = "[user]Be brief.\n\nHi"
    for more in ([], [CALLING, RESULT], [CALLING, RESULT], said("assistant: Rain."), said("user: Again?")):
        begin += more
        before, shown = shown, render(SYSTEM_AT_THE_END, *begin)
        assert shown.startswith(before)
        assert shown.count("Be brief.") == 1
    assert render(SYSTEM_AT_THE_END, *talk[:3]) == "[user]Be brief.\n\nHi[assistant]Hello."


def test_the_system_stays_where_an_answer_may_not_be_the_end() -> None:
    refuses = "{% if messages[-1].role == 'assistant' %}{{ raise_exception('no question') }}{% endif %}"
    talk = [*said("system: Be brief.", "user: Hi"), CALLING, RESULT]
    assert render(refuses + HERMES, *talk) == render(HERMES, *talk)


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


@pytest.mark.parametrize("template", [STRICT_MISTRAL, SYSTEM_AT_THE_END])
def test_text_beside_calls_where_an_answer_may_be_one_text(template: str) -> None:
    """The assistant's texts of a turn are combined to the last of them."""
    begin = said("user: Hi")
    calling = {**CALLING, "content": "Let me see."}
    again = {**CALLING, "content": "Once more."}
    (both,) = said("assistant: Let me see.\n\nOnce more.")
    (answer,) = said("assistant: Let me see.\n\nOnce more.\n\nRain.")
    more = [*said("user: Well?"), calling, RESULT, *said("assistant: Snow.", "user: Oh.")]
    less = [*said("user: Well?"), CALLING, RESULT, *said("assistant: Let me see.\n\nSnow.", "user: Oh.")]
    for messages, equal in (
        ([calling, RESULT], [*said("assistant: Let me see."), CALLING, RESULT]),
        ([calling, RESULT, again, RESULT], [CALLING, RESULT, both, CALLING, RESULT]),
        (
            [calling, RESULT, again, RESULT, *said("assistant: Rain.")],
            [CALLING, RESULT, CALLING, RESULT, answer],
        ),
        (
            [calling, RESULT, again, RESULT, *said("assistant: Rain."), *more],
            [CALLING, RESULT, CALLING, RESULT, answer, *less],
        ),
        (
            [calling, RESULT, *said("user: Hurry.", "assistant: Rain.")],
            [CALLING, {**RESULT, "content": "rain\n\nHurry."}, *said("assistant: Let me see.\n\nRain.")],
        ),
    ):
        text = render(template, *begin, *messages)
        assert text == ChatTemplate(TemplateSource(template, {}))._render([*begin, *equal], None, True, {})


@pytest.mark.parametrize("template", [HERMES, LLAMA, DEEPSEEK, MISTRAL])
def test_text_beside_calls_stays_where_it_is_where_it_can(template: str) -> None:
    talk = [*said("user: Hi"), {**CALLING, "content": "Let me see."}, RESULT, *said("assistant: It rains.")]
    text = render(template, *talk, *said("user: Well?"))
    places = [text.index(item) for item in ("Let me see.", "weather", "It rains.", "Well?")]
    assert places == sorted(places)


def test_what_no_order_mends_is_refused() -> None:
    with pytest.raises(Exception, match="roles must alternate"):
        render(GEMMA, *said("assistant: Hi"))
