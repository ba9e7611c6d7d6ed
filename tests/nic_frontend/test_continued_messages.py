"""Answers that continue the last message of a conversation: prompts beside those of transformers, and each
endpoint.
"""

from __future__ import annotations

from typing import Any

import pytest
from harness import Frontend, Speak, error_of
from scripted_answers import say
from sse import events, text_of
from templates import DEEPSEEK, GEMMA, HERMES, LLAMA, MISTRAL, PHI
from test_template_trials import PUBLISHED, published
from tiny_model import build_tokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from nic_frontend.errors import ApiError
from nic_frontend.parsing.delta import Reasoning, Text
from nic_frontend.parsing.registry import Parsers, choose
from nic_frontend.templates.chat_template import ChatTemplate, TemplateSource
from nic_frontend.templates.prompt_end import PromptEnd

pytestmark = pytest.mark.usefixtures("kept_frontend")

TOKENIZER = build_tokenizer()
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
ASKED = [{"role": "user", "content": "hi"}]
BEGUN = [*ASKED, {"role": "assistant", "content": "It ra"}]
TRIMS = "{% for m in messages %}<{{ m.role }}>\n\n{{ m.content | trim }}<end>{% endfor %}"
PUBLISHED_NAMES = sorted(path.stem for path in PUBLISHED.glob("*.jinja"))
SMALL = {
    "deepseek": DEEPSEEK,
    "gemma": GEMMA,
    "hermes": HERMES,
    "llama": LLAMA,
    "mistral": MISTRAL,
    "phi": PHI,
}


def ours(source: str, *messages: dict[str, Any]) -> str:
    return ChatTemplate(TemplateSource(source, TOKENS)).render(list(messages), PromptEnd.WITHIN, {})


def theirs(source: str, *messages: dict[str, Any]) -> str:
    prompts, _ = render_jinja_template(
        [list(messages)], chat_template=source, continue_final_message=True, **TOKENS
    )
    return str(prompts[0])


@pytest.mark.parametrize("text", ["It ra", " It ra\n", "It ra  ", "a</s>b"])
@pytest.mark.parametrize("name", [*PUBLISHED_NAMES, *SMALL])
def test_prompts_are_those_of_transformers(name: str, text: str) -> None:
    source = SMALL.get(name) or (PUBLISHED / f"{name}.jinja").read_text()
    messages = [*ASKED, {"role": "assistant", "content": text}]
    assert ours(source, *messages) == theirs(source, *messages)


def _has_think(parsers: Parsers) -> bool:
    return parsers.marks is not None and parsers.marks.opening == "<think>"


@pytest.mark.parametrize("name", PUBLISHED_NAMES)
@pytest.mark.parametrize("reasoning", ["auto", "deepseek_r1"])
def test_what_continues_an_answer_is_no_reasoning(name: str, reasoning: str) -> None:
    forms = choose("auto", reasoning, published(name).forms)
    for text, kind in (("It ra", Text), ("<think>It ra", Reasoning if _has_think(forms) else Text)):
        splitter = forms.form(text, tools=False, continued=text).splitter(frozenset(), False, None)
        assert splitter.feed("ins.") + splitter.finish() == [kind("ins.")]


def test_space_that_a_template_takes_away_ends_no_prompt() -> None:
    begun = {"role": "assistant", "content": "It \n"}
    assert ours(TRIMS, *ASKED, begun) == "<user>\n\nhi<end><assistant>\n\nIt"
    assert ours(TRIMS, *ASKED, {**begun, "content": ""}) == "<user>\n\nhi<end><assistant>\n\n"


def test_what_a_template_leaves_out_is_refused() -> None:
    drops = "{% for m in messages %}<{{ m.role }}>{{ m.content.split('</think>')[-1] }}{% endfor %}"
    with pytest.raises(ApiError, match="it may leave out thoughts"):
        ours(drops, *ASKED, {"role": "assistant", "content": "<think>Hm.</think>It ra"})


def asked(frontend: Frontend, path: str = "/v1/chat/completions", **changes: Any) -> Any:
    body = {"messages": BEGUN, "continue_final_message": True, "max_tokens": 200, **changes}
    return frontend.client.post(path, json=body)


def prompt(frontend: Frontend) -> str:
    return str(TOKENIZER.decode(frontend.backend.accepted[-1].prompt, skip_special_tokens=False))


def test_only_the_continuation_is_the_answer(speak: Speak) -> None:
    frontend = speak(HERMES, "ins.")
    found = asked(frontend, add_generation_prompt=False).json()["choices"][0]["message"]
    assert prompt(frontend) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nIt ra"
    assert (found["content"], found.get("reasoning_content")) == ("ins.", None)
    assert text_of(events(asked(frontend, stream=True))) == "ins."


@pytest.mark.parametrize(
    "template", [HERMES, PHI]
)  # one that finds reasoning and calls, and one that does not
@pytest.mark.parametrize("continues", [True, False])
def test_echo_begins_with_the_assistants_message(speak: Speak, template: str, continues: bool) -> None:
    frontend = speak(template, "ins.")
    changes = {"continue_final_message": continues, "echo": True, "n": 2, "logprobs": True}
    for choice in asked(frontend, **changes).json()["choices"]:
        assert choice["message"]["content"] == "It rains."
        assert len(choice["logprobs"]["content"]) == len(TOKENIZER.encode("ins.").ids) + 1
    chunks = events(asked(frontend, stream=True, **changes))
    assert (text_of(chunks), text_of(chunks, 1)) == ("It rains.", "It rains.")


def test_nobody_elses_message_is_echoed(speak: Speak) -> None:
    frontend = speak(HERMES, "Hello.")
    found = asked(frontend, messages=ASKED, continue_final_message=False, echo=True).json()
    assert found["choices"][0]["message"]["content"] == "Hello."


def test_a_thought_that_is_open_is_continued(speak: Speak) -> None:
    frontend = speak(HERMES, " it be?</think>It rains.")
    begun = [*ASKED, {"role": "assistant", "content": "<think>Can"}]
    found = asked(frontend, messages=begun).json()["choices"][0]["message"]
    assert (found["reasoning_content"], found["content"]) == (" it be?", "It rains.")


def test_a_mark_of_thoughts_in_a_continuation_is_text(speak: Speak) -> None:
    frontend = speak(HERMES, "<think>ins</think>.")
    assert asked(frontend).json()["choices"][0]["message"]["content"] == "<think>ins</think>."


def test_a_call_is_found_in_a_continuation(speak: Speak) -> None:
    frontend = speak(HERMES, 'ins.<tool_call>{"name": "f", "arguments": {}}</tool_call>')
    tool = {"type": "function", "function": {"name": "f"}}
    found = asked(frontend, tools=[tool]).json()["choices"][0]
    assert found["finish_reason"] == "tool_calls"
    assert (found["message"]["content"], len(found["message"]["tool_calls"])) == ("ins.", 1)


CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"add_generation_prompt": True}, "excludes 'add_generation_prompt'"),
        ({"messages": ASKED}, "but 'messages[0]' has the role 'user'"),
        (
            {"messages": [*ASKED, {"role": "assistant", "content": "x", "tool_calls": [CALL]}]},
            "ends with calls",
        ),
        ({"messages": [*ASKED, {"role": "assistant"}]}, "has no content"),
    ],
)
def test_what_cannot_be_continued_is_refused(speak: Speak, changes: dict[str, Any], message: str) -> None:
    frontend = speak(HERMES, "x")
    for path in ("/v1/chat/completions", "/v1/chat/completions/render", "/tokenize"):
        error = error_of(asked(frontend, path, **changes), 400)
        assert error["param"] == "continue_final_message"
        assert message in error["message"]


def test_tokenize_and_render_give_the_same_prompt(speak: Speak) -> None:
    frontend = speak(HERMES, "x")
    tokens = asked(frontend, "/tokenize").json()["tokens"]
    assert TOKENIZER.decode(tokens, skip_special_tokens=False).endswith("assistant\nIt ra")
    assert asked(frontend, "/v1/chat/completions/render").json()["token_ids"] == tokens


# ---------------------------------------------------------------- Anthropic's messages


def messages(frontend: Frontend, content: Any, **changes: Any) -> Any:
    begun = [*ASKED, {"role": "assistant", "content": content}]
    return frontend.client.post("/v1/messages", json={"messages": begun, "max_tokens": 200, **changes})


@pytest.mark.parametrize("content", ["It ra", [{"type": "text", "text": "It ra"}]])
def test_messages_continue_the_assistants_last(speak: Speak, content: Any) -> None:
    frontend = speak(HERMES, "ins.")
    answer = messages(frontend, content)
    assert [block["text"] for block in answer.json()["content"]] == ["ins."]
    assert prompt(frontend).endswith("<|im_start|>assistant\nIt ra")


@pytest.mark.parametrize(
    ("content", "changes", "why"),
    [
        ("It ra ", {}, "ends with whitespace"),
        ([{"type": "text", "text": "It ra\n"}], {}, "ends with whitespace"),
        ([{"type": "tool_use", "id": "t", "name": "f", "input": {}}], {}, "has a 'tool_use'"),
        ([{"type": "thinking", "thinking": "Hm."}], {}, "ends with thinking"),
        ("It ra", {"thinking": {"type": "enabled", "budget_tokens": 1024}}, "without the thinking"),
    ],
)
def test_messages_that_cannot_be_continued(
    speak: Speak, content: Any, changes: dict[str, Any], why: str
) -> None:
    answer = messages(speak(HERMES, "x"), content, **changes)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("'messages[1]' is the assistant's and the last one")
    assert why in answer.json()["error"]["message"]


# ---------------------------------------------------------------- responses


@pytest.mark.parametrize(
    ("status", "end"), [("incomplete", "It ra"), ("in_progress", "It ra"), ("completed", "assistant\n")]
)
def test_responses_continue_a_message_that_is_incomplete(speak: Speak, status: str, end: str) -> None:
    frontend = speak(HERMES, "ins.")
    part = {"type": "output_text", "text": "It ra", "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": status, "content": [part]}
    answer = frontend.client.post("/v1/responses", json={"input": [*ASKED, item]})
    assert answer.json()["output"][0]["content"][0]["text"] == "ins."
    assert prompt(frontend).endswith(end)


def test_an_answer_is_continued_from_where_it_was_cut(speak: Speak) -> None:
    frontend = speak(HERMES, "It rains in Ghent.")
    whole = asked(frontend, messages=ASKED, continue_final_message=False).json()["choices"][0]["message"][
        "content"
    ]
    cut = asked(frontend, messages=ASKED, continue_final_message=False, max_tokens=3).json()["choices"][0]
    begun = cut["message"]["content"]
    frontend.backend.script = say(TOKENIZER.encode(whole.removeprefix(begun), add_special_tokens=False).ids)
    more = asked(frontend, messages=[*ASKED, {"role": "assistant", "content": begun}], echo=True).json()
    assert more["choices"][0]["message"]["content"] == whole
