"""Tools, calls and results in templates of several kinds: shown as the template wants them, or refused."""

from __future__ import annotations

from typing import Any

import pytest
from templates import DEEPSEEK, HERMES, LLAMA, MISTRAL, PHI
from tiny_model import TEMPLATE

from nic_frontend.errors import ApiError
from nic_frontend.parsing.registry import TOOL_CALL_PARSERS, choose
from nic_frontend.templates.chat_template import ChatTemplate, TemplateSource
from nic_frontend.templates.prompt_end import PromptEnd

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
USER = {"role": "user", "content": "Hi"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Köln"}}}
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "call_1", "name": "weather", "content": "rain"}


def render(source: str, *messages: dict[str, Any], tools: list[dict[str, Any]] | None = None) -> str:
    return ChatTemplate(TemplateSource(source, {})).render(list(messages), PromptEnd.ANSWER, {}, tools)


def test_arguments_are_objects_where_they_become_json() -> None:
    text = render(HERMES, USER, CALLING, RESULT, tools=[TOOL])
    assert '{"name": "weather", "arguments": {"city": "Köln"}}' in text
    assert '{"type": "function", "function": {"name": "weather"' in text
    assert "tool\nrain" in text


def test_arguments_are_text_where_they_are_printed() -> None:
    assert 'call weather {"city": "Köln"}' in render(DEEPSEEK, USER, CALLING)


@pytest.mark.parametrize("template", [LLAMA, DEEPSEEK])
def test_text_beside_a_call_has_a_message_of_its_own_where_it_would_be_lost(template: str) -> None:
    text = render(template, USER, {**CALLING, "content": "Let me see."}, RESULT)
    assert text.index("Let me see.") < text.index("weather") < text.index("rain")


def test_ids_fit_the_template() -> None:
    text = render(MISTRAL, USER, CALLING, RESULT)
    (first, second) = [part[:9] for part in (text.split('"id": "')[1], text.split("[TOOL_RESULTS]")[1])]
    assert first == second
    assert first.isalnum()
    kept = {**CALLING, "tool_calls": [{**CALL, "id": "abcdefghi"}]}
    assert '"id": "abcdefghi"' in render(MISTRAL, USER, kept)


def test_tools_in_the_system_message() -> None:
    shown = '<|tool|>[{"name": "weather", "parameters": {"type": "object"}}]<|/tool|>'
    assert render(PHI, USER, tools=[TOOL]).startswith(f"<|system|>{shown}")
    system = {"role": "system", "content": "Be brief."}
    assert render(PHI, system, USER, tools=[TOOL]).startswith(f"<|system|>Be brief.{shown}")


@pytest.mark.parametrize(
    ("template", "messages", "tools", "param"),
    [
        (TEMPLATE, [USER], [TOOL], "tools"),
        (DEEPSEEK, [USER], [TOOL], "tools"),
        (TEMPLATE, [USER, CALLING], None, "messages[1].tool_calls"),
        (PHI, [USER, CALLING], None, "messages[1].tool_calls"),
        (TEMPLATE, [USER, RESULT], None, "messages[1]"),
        (LLAMA, [USER, {**CALLING, "tool_calls": [CALL, CALL]}], None, "messages"),
    ],
)
def test_what_a_template_does_not_know_is_refused(
    template: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, param: str
) -> None:
    with pytest.raises(ApiError) as refusal:
        render(template, *messages, tools=tools)
    error: Any = refusal.value.body["error"]
    assert (refusal.value.status, error["param"]) == (400, param)


@pytest.mark.parametrize(
    ("template", "calls", "thinks"),
    [
        (HERMES, "hermes", True),
        (LLAMA, "llama3_json", False),
        (MISTRAL, "mistral", False),
        (PHI, "phi4_mini", False),
        (DEEPSEEK, None, True),
        (TEMPLATE, None, False),
        ("<tool_call><function=f></tool_call>{{ messages[0].content }}", None, False),
    ],
)
def test_parsers_are_chosen_by_the_template(template: str, calls: str | None, thinks: bool) -> None:
    forms = ChatTemplate(TemplateSource(template, {})).forms
    parsers = choose("auto", "auto", forms)
    assert parsers.tool_calls == (TOOL_CALL_PARSERS[calls] if calls else None)
    assert (parsers.marks is not None) == thinks
    assert choose("none", "none", forms) == choose("auto", "auto", None)
    assert choose("pythonic", "think", forms).tool_calls == TOOL_CALL_PARSERS["pythonic"]
