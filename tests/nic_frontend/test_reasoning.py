"""Reasoning in chats: split off, counted, turned off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import Frontend, Speak
from sse import events, text_of
from templates import DEEPSEEK, HERMES, LLAMA
from tiny_model import build_tokenizer

THOUGHT = "<think>\nHm, weather.\n</think>\n\nIt rains."
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}


def post(frontend: Frontend, **changes: Any) -> Any:
    answer = frontend.client.post("/v1/chat/completions", json={**BODY, **changes})
    assert answer.status_code == 200, answer.text
    return answer


def prompt(frontend: Frontend) -> str:
    return str(build_tokenizer().decode(frontend.backend.accepted[-1].prompt, skip_special_tokens=False))


def reasoning_of(chunks: list[dict[str, Any]]) -> str:
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert all(delta.get("reasoning") == delta.get("reasoning_content") for delta in deltas)
    return "".join(delta.get("reasoning_content", "") for delta in deltas)


@pytest.mark.parametrize(
    ("template", "text"), [(HERMES, THOUGHT), (DEEPSEEK, THOUGHT.removeprefix("<think>\n"))]
)
def test_it_is_split_off(speak: Speak, template: str, text: str) -> None:
    """The second template has opened it already."""
    frontend = speak(template, text)
    answer = post(frontend).json()
    message = answer["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("It rains.", "Hm, weather.")
    assert message["reasoning"] == message["reasoning_content"]
    chunks = events(post(frontend, stream=True, stream_options={"include_usage": True}))
    assert (text_of(chunks), reasoning_of(chunks)) == ("It rains.", "Hm, weather.")
    thought = text[: text.index("</think>") + len("</think>")]
    for usage in (answer["usage"], chunks[-1]["usage"]):
        n_tokens = usage["completion_tokens_details"]["reasoning_tokens"]
        assert abs(n_tokens - len(build_tokenizer().encode(thought).ids)) <= 1
        assert n_tokens < usage["completion_tokens"]


def test_an_answer_without_it(speak: Speak) -> None:
    message = post(speak(HERMES, "It rains.")).json()["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("It rains.", None)


def test_it_ends_with_the_answer(speak: Speak) -> None:
    answer = post(speak(HERMES, THOUGHT), max_tokens=6).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["choices"][0]["message"]["content"] == ""
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 6


def test_it_can_be_hidden(speak: Speak) -> None:
    frontend = speak(HERMES, THOUGHT)
    assert "reasoning_content" not in post(frontend, include_reasoning=False).json()["choices"][0]["message"]
    assert reasoning_of(events(post(frontend, include_reasoning=False, stream=True))) == ""


def test_no_parser_splits_nothing(speak: Speak) -> None:
    message = post(speak(HERMES, THOUGHT, reasoning_parser="none")).json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": THOUGHT, "refusal": None}


@pytest.mark.parametrize(
    "changes", [{"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"}]
)
def test_thinking_can_be_turned_off(speak: Speak, changes: dict[str, Any]) -> None:
    frontend = speak(HERMES, "It rains.")
    answer = post(frontend, **changes)
    assert prompt(frontend).endswith("<think>\n\n</think>\n\n")
    assert answer.json()["choices"][0]["message"]["content"] == "It rains."
    assert "x-blink-warning" not in answer.headers


def test_efforts_mean_what_the_template_knows(speak: Speak) -> None:
    known = speak(
        LLAMA.replace("<|im_start|>assistant\n{% endif %}", "{{ reasoning_effort }}{% endif %}"), "x"
    )
    assert "x-blink-warning" not in post(known, reasoning_effort="high").headers
    assert prompt(known).endswith("high")
    post(known, reasoning_effort="max")
    assert prompt(known).endswith("max")
    for template in (HERMES, LLAMA):
        assert (
            "'reasoning_effort'"
            in post(speak(template, "x"), reasoning_effort="high").headers["x-blink-warning"]
        )


def test_a_call_behind_it(speak: Speak) -> None:
    call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    tool = {"type": "function", "function": {"name": "f"}}
    frontend = speak(HERMES, f"<think>I could <tool_call></think>\n{call}")
    message = post(frontend, tools=[tool]).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("I could <tool_call>", None)
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}


def test_variables_that_a_template_does_not_read_are_named(speak: Speak) -> None:
    frontend = speak(HERMES, "It rains.")
    options = {"enable_thinking": True, "enable_thinkng": False, "é": 1}
    warning = post(frontend, chat_template_kwargs=options).headers["x-blink-warning"]
    assert (
        warning == "the chat template of this model reads no 'enable_thinkng', '?' of 'chat_template_kwargs'"
    )


def test_a_switch_of_another_name(speak: Speak) -> None:
    """As DeepSeek-V3.1's, which is called `thinking`."""
    template = DEEPSEEK.replace("<think>", "{{ '<think>' if thinking else '</think>' }}")
    for effort, end, message in (("high", "<think>", THOUGHT), ("none", "</think>", "It rains.")):
        frontend = speak(template, message.removeprefix("<think>\n"))
        answer = post(frontend, reasoning_effort=effort).json()["choices"][0]["message"]
        assert prompt(frontend).rstrip().endswith(end)
        assert answer["content"] == "It rains."


def test_a_model_with_the_marks_of_one_that_thinks(speak: Speak) -> None:
    """As DeepSeek-V3, which has R1's marks of turns, and no thoughts."""
    frontend = speak(DEEPSEEK.replace("<think>", ""), "It rains.")
    answer = post(frontend).json()["choices"][0]["message"]
    assert (answer["content"], answer.get("reasoning_content")) == ("It rains.", None)


def test_a_template_in_a_file_of_its_own(speak: Speak, tmp_path: Path) -> None:
    (tmp_path / "mine.jinja").write_text("Q: {{ messages[0].content }} A:")
    frontend = speak(HERMES, "It rains.", chat_template=tmp_path / "mine.jinja")
    post(frontend)
    assert prompt(frontend) == "Q: hi A:"
