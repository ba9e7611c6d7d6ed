"""What trials show of chat templates: published ones, and small ones that treat one thing in a way of its own."""

# ruff: noqa: E501 (templates are long)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from templates import GEMMA, HERMES, LLAMA, MISTRAL, PHI

from nic_frontend.errors import ApiError
from nic_frontend.parsing.delta import Reasoning, Text
from nic_frontend.parsing.registry import REASONING_PARSERS, TOOL_CALL_PARSERS, Parsers, choose
from nic_frontend.parsing.splitter import Splitter
from nic_frontend.templates.chat_template import ChatTemplate, TemplateSource
from nic_frontend.templates.prompt_end import PromptEnd

PUBLISHED = Path(__file__).parent / "chat_templates"
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "where"}},
            "required": ["city"],
        },
    },
}
USER = {"role": "user", "content": "Hi"}
# As vision models' (Llava, SmolVLM, Idefics): a content is a list of parts, of which texts are shown.
PARTS = "{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}"


def chat(content: str, roles: str = "{{ '<|' + message.role + '|>' }}") -> str:
    """A template that writes a role and a content in one way for all messages."""
    return (
        "{% for message in messages %}" + roles + content + "<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )


def tried(source: str) -> ChatTemplate:
    return ChatTemplate(TemplateSource(source, {"bos_token": "<s>", "eos_token": "</s>"}))


def published(name: str) -> ChatTemplate:
    return tried((PUBLISHED / f"{name}.jinja").read_text())


def said(*turns: str) -> list[dict[str, Any]]:
    return [dict(zip(("role", "content"), turn.split(": "), strict=True)) for turn in turns]


def split(parsers: Parsers, prompt: str, answer: str) -> tuple[str, str]:
    """Content and reasoning of an answer."""
    splitter = Splitter(parsers.reasoning(prompt), None)
    deltas = splitter.feed(answer) + splitter.finish()
    return tuple(  # type: ignore[return-value]
        "".join(delta.text for delta in deltas if isinstance(delta, kind)) for kind in (Text, Reasoning)
    )


@pytest.mark.parametrize(
    ("name", "calls", "marks", "switches", "has_efforts"),
    [
        ("deepseek-r1-distill", None, "think", (), False),
        ("deepseek-v3", None, None, (), False),
        ("deepseek-v3.1", None, "think", ("enable_thinking", "thinking"), False),
        ("gpt-oss", None, None, (), True),
        ("granite-3.3", "phi4_mini", "think", ("thinking",), False),
        ("ministral-3-reasoning", "mistral", "magistral", (), False),
        ("mistral-nemo", "mistral", None, (), False),
        ("phi-3.5-mini", None, None, (), False),
        ("qwen2.5", "hermes", None, (), False),
        ("qwen3", "hermes", "think", ("enable_thinking",), False),
        ("qwen3-coder", None, None, (), False),
    ],
)
def test_what_is_found_of_published_templates(
    name: str, calls: str | None, marks: str | None, switches: tuple[str, ...], has_efforts: bool
) -> None:
    template = published(name)
    parsers = choose("auto", "auto", template.forms)
    assert parsers.tool_calls == (TOOL_CALL_PARSERS[calls] if calls else None)
    assert parsers.marks == (REASONING_PARSERS[marks] if marks else None)
    thoughts = template.forms.plain.thoughts
    assert (thoughts.switches, bool(thoughts.efforts)) == (switches, has_efforts)
    assert split(parsers, template.render([USER], PromptEnd.ANSWER, {"thinking": False}), "Hello.")[1] == (
        "Hello." if name == "deepseek-r1-distill" else ""  # its prompt begins a thought
    )


def test_a_source_is_tried_as_well() -> None:
    """For whoever has a template's text, and no process that has tried it."""
    source = "{{ '<\uff5cUser\uff5c>' + messages[0].content + '<\uff5cAssistant\uff5c>' }}"
    assert choose("auto", "auto", source) == choose("none", "none", None)
    thinking = (PUBLISHED / "deepseek-r1-distill.jinja").read_text()
    assert choose("auto", "auto", thinking).marks == REASONING_PARSERS["think"]


@pytest.mark.parametrize("name", sorted(path.stem for path in PUBLISHED.glob("*.jinja")))
def test_nothing_that_was_said_disappears(name: str) -> None:
    """It is in the prompt, or the request is refused."""
    call = {
        "id": "abcdefghi",
        "type": "function",
        "function": {"name": "weather", "arguments": {"city": "Ulm"}},
    }
    letters = {"s": "system", "d": "developer", "u": "user", "a": "assistant"}
    template, n_shown = published(name), 0
    for roles in ("u", "su", "du", "sdu", "uau", "suadu", "uua", "s", "d", "uTR", "suTRau", "duTRTRd"):
        for tools in (None, [WEATHER]):
            messages: list[dict[str, Any]] = []
            for i, letter in enumerate(roles):
                message = {"role": letters.get(letter, "assistant"), "content": f"text {i}"}
                if letter == "T":
                    message["tool_calls"] = [call]  # type: ignore[assignment]
                if letter == "R":
                    message |= {"role": "tool", "tool_call_id": "abcdefghi", "name": "weather"}
                messages.append(message)
            try:
                prompt = template.render(messages, PromptEnd.ANSWER, {}, tools)
            except ApiError:
                continue
            n_shown += 1
            assert [message["content"] for message in messages if message["content"] not in prompt] == []
            assert "T" not in roles or "Ulm" in prompt
    assert n_shown >= 9


# ---------------------------------------------------------------- contents


@pytest.mark.parametrize(
    "content",
    [
        "{{ message.content }}",
        "{% if message.content is string %}{{ message.content }}{% else %}" + PARTS + "{% endif %}",
        "{% for character in message.content %}{{ character }}{% endfor %}",
        PARTS,
        "{% for part in message['content'] if part.type == 'text' %}{{ part['text'] | trim }}{% endfor %}",
        "{{ message['content'][0]['text'] }}",
        "{{ message.content | map(attribute='text') | join }}",
        "{% if message.role == 'user' %}" + PARTS + "{% else %}{{ message.content }}{% endif %}",
        "{% if message.role == 'user' %}{{ message.content }}{% else %}" + PARTS + "{% endif %}",
        "{% if message.content is string %}{{ raise_exception('parts') }}{% endif %}" + PARTS,
    ],
)
def test_contents_are_written_in_the_form_that_is_shown(content: str) -> None:
    text = tried(chat(content)).render(
        said("system: Be brief.", "user: Hi", "assistant: Hello.", "user: "), PromptEnd.ANSWER, {}
    )
    assert (
        text
        == "<|system|>Be brief.<|end|><|user|>Hi<|end|><|assistant|>Hello.<|end|><|user|><|end|><|assistant|>"
    )


def test_results_are_written_in_the_form_that_is_shown() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": {}}}
    result = {"role": "tool", "tool_call_id": "call_1", "name": "f", "content": "rain"}
    shown = HERMES.replace(
        "{{ message.content }}",
        "{% if message.role == 'tool' %}" + PARTS + "{% else %}{{ message.content }}{% endif %}",
    )
    messages = [USER, {"role": "assistant", "content": "", "tool_calls": [call]}, result]
    assert "<|im_start|>tool\nrain<|im_end|>" in tried(shown).render(messages, PromptEnd.ANSWER, {})


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{# message.content #}",
        "{% for part in message.content %}<p>{{ part }}</p>{% endfor %}",
        "{% if message.content is not string %}{{ message.content }}{% endif %}",
        "{% if message.content is not string %}{{ message.content | tojson }}{% endif %}",
    ],
)
def test_what_a_template_does_not_show_is_refused(content: str) -> None:
    """Neither of a text nor of parts, which it may print as Python or JSON writes them."""
    with pytest.raises(ApiError, match="nothing of what the user says") as refusal:
        tried(chat(content)).render([USER], PromptEnd.ANSWER, {})
    assert refusal.value.status == 400


def test_a_template_of_single_turns_takes_no_more() -> None:
    template = tried("Q: {{ messages[-1].content }} A:")
    assert template.render([USER], PromptEnd.ANSWER, {}) == "Q: Hi A:"
    with pytest.raises(ApiError, match=r"what the assistant says, so 'messages\[1\].content'"):
        template.render(said("user: Hi", "assistant: Hello.", "user: Well?"), PromptEnd.ANSWER, {})


# ---------------------------------------------------------------- roles

KNOWN = "{% if message.role not in ('system', 'user', 'assistant') %}{% continue %}{% endif %}<|{{ message.role }}|>"
MARKED = "{% if message.role == 'developer' %}<|rules|>{% else %}<|{{ message.role }}|>{% endif %}"
FIRST_ALONE = "{% if message.role == 'developer' and not loop.first %}{% continue %}{% endif %}" + MARKED


@pytest.mark.parametrize(
    ("roles", "mark"),
    [
        ("<|{{ message.role }}|>", "<|system|>"),
        ("<|{{ message.role | upper }}|>", "<|SYSTEM|>"),
        ("{# developer #}" + KNOWN, "<|system|>"),
        ("{% set names = ['developer'] %}" + KNOWN, "<|system|>"),
        ("{% if message.role == 'developer' %}{{ raise_exception('who?') }}{% endif %}" + KNOWN, "<|system|>"),
        ("{% if message.role in ('system', 'developer') %}<|rules|>{% else %}" + KNOWN + "{% endif %}", "<|rules|>"),
        (MARKED, "<|rules|>"),
        (FIRST_ALONE, "<|system|>"),
    ],
)  # fmt: skip
def test_the_developer_is_shown(roles: str, mark: str) -> None:
    """As the system, unless the template has a mark of its own, wherever a developer may speak."""
    messages = said("developer: Be brief.", "user: Hi", "developer: Hurry.", "user: Well?")
    text = tried(chat("{{ message.content }}", roles)).render(messages, PromptEnd.ANSWER, {})
    assert (f"{mark}Be brief.", f"{mark}Hurry.") == (text[: text.index("<|end|>")], text.split("<|end|>")[2])


# ---------------------------------------------------------------- thoughts


def deepseek(content: str) -> str:
    """DeepSeek's marks, of models that think and of models that do not; `content` writes messages behind the first."""
    turns = "{% for m in messages[1:] %}<\uff5c{{ m.role }}\uff5c>" + content + "{% endfor %}"
    return "<\uff5cUser\uff5c>{{ messages[0].content }}" + turns + "<\uff5cAssistant\uff5c>"


PLAIN = deepseek("{{ m.content }}")
DROPS = deepseek("{{ m.content.split('</think>')[-1] }}")
WRITES = deepseek(
    "{% if m.reasoning_content %}[THINK]{{ m.reasoning_content }}[/THINK]{% endif %}{{ m.content }}"
)
ASKS = "Think between <think> and </think>. " + PLAIN
MENTIONS = "{# </think> [THINK] #}{% set a = '<think>' %}" + PLAIN
SWITCHED = PLAIN + "{% if thinking %}<think>{% else %}</think>{% endif %}"


@pytest.mark.parametrize(
    ("template", "answer", "content", "reasoning"),
    [
        (PLAIN, "<think>Hm</think>Hi", "<think>Hm</think>Hi", ""),
        (MENTIONS, "<think>Hm</think>Hi", "<think>Hm</think>Hi", ""),
        (DROPS, "<think>Hm</think>Hi", "Hi", "Hm"),
        (DROPS, "Hi", "Hi", ""),
        (DROPS + "<think>\n", "Hm</think>Hi", "Hi", "Hm"),
        (WRITES, "[THINK]Hm[/THINK]Hi", "Hi", "Hm"),
        (ASKS, "<think>Hm</think>Hi", "Hi", "Hm"),
        (SWITCHED, "Hi", "Hi", ""),
    ],
)
def test_answers_have_reasoning_where_the_template_knows_of_it(
    template: str, answer: str, content: str, reasoning: str
) -> None:
    chats = tried(template)
    parsers = choose("auto", "auto", chats.forms)
    assert split(parsers, chats.render([USER], PromptEnd.ANSWER, {}), answer) == (content, reasoning)


def test_an_answer_to_a_prompt_that_was_made_to_think() -> None:
    chats = tried(SWITCHED)
    prompt = chats.render([USER], PromptEnd.ANSWER, {"thinking": True})
    assert split(choose("auto", "auto", chats.forms), prompt, "Hm</think>Hi") == ("Hi", "Hm")


# ---------------------------------------------------------------- calls


@pytest.mark.parametrize(
    ("call", "parser"),
    [
        ('<tool_call>\n{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}\n</tool_call>', "hermes"),
        ('{"name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}', "llama3_json"),
        ('[TOOL_CALLS][{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}]', "mistral"),
        ("[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}", "mistral"),
        ('<|tool_call|>[{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}]<|/tool_call|>', "phi4_mini"),
        ("[{{ f.name }}({% for k, v in f.arguments.items() %}{{ k }}={{ v | tojson }}{% endfor %})]", "pythonic"),
        ("<tool_call><function={{ f.name }}>{{ f.arguments | tojson }}</function></tool_call>", None),
        ("<tool_call>{{ f.name }}{{ f.arguments | tojson }}</tool_call>", None),
        ('{"tool": "{{ f.name }}", "input": {{ f.arguments | tojson }}}', None),
    ],
)  # fmt: skip
def test_the_parser_is_the_one_that_reads_what_the_template_writes(call: str, parser: str | None) -> None:
    tools = "{% if tools %}{{ tools | tojson }} Not {# <tool_call> #} as [TOOL_CALLS] or <|python_tag|>.{% endif %}"
    calls = "{% for c in message.tool_calls %}{% set f = c.function %}" + call + "{% endfor %}"
    template = tried(tools + chat("{{ message.content }}" + calls))
    assert choose("auto", "none", template.forms).tool_calls == (
        TOOL_CALL_PARSERS[parser] if parser else None
    )


def test_another_template_for_tools_is_tried_by_itself() -> None:
    source = TemplateSource(chat(PARTS), {}, HERMES)
    template = ChatTemplate(source)
    assert choose("auto", "auto", template.forms).tool_calls == TOOL_CALL_PARSERS["hermes"]
    assert template.render([USER], PromptEnd.ANSWER, {}) == "<|user|>Hi<|end|><|assistant|>"
    assert "<|im_start|>user\nHi" in template.render([USER], PromptEnd.ANSWER, {}, [WEATHER])


# ---------------------------------------------------------------- variables


@pytest.mark.parametrize("template", [HERMES, LLAMA, MISTRAL, PHI, GEMMA])
def test_words_in_comments_and_texts_change_nothing(template: str) -> None:
    words = "enable_thinking reasoning_effort developer <think> </think> [THINK] <tool_call> [TOOL_CALLS] tool_code"
    plain, commented = (
        tried(template).forms,
        tried("{# " + words + " #}{% set x = '" + words + "' %}" + template).forms,
    )
    assert plain == commented


def test_a_template_that_always_shows_the_time_has_no_switches() -> None:
    thoughts = tried(chat("{{ strftime_now('%H:%M:%S.%f') }}{{ message.content }}")).forms.plain.thoughts
    assert (thoughts.switches, thoughts.efforts) == ((), ())
