"""Answers on the page: markdown, folded thoughts and calls, system prompts, tools, copying, stopping."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from chatting import ask, asked_bodies, focused, whole_answer
from harness import Speak, wait_until
from templates import HERMES
from tiny_model import build_tokenizer

pytestmark = pytest.mark.slow

THOUGHT = "<think>\nHm, **weather**.\n</think>\n\nIt *rains*."
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CODE = "See:\n\n```py\nx = 1\n\ny = '<b>'\n```\n\nDone *now*."

# A promise that the button says so, which it does for a moment: whoever looks later finds it kept.
NOTE_COPIED = """one => { window.copied = new Promise((kept) => {
  const look = () => { if (one.textContent === "Copied") kept(); };
  new MutationObserver(look).observe(one, { childList: true });
}); }"""


def prompt(frontend: Any) -> str:
    return str(build_tokenizer().decode(frontend.backend.accepted[-1].prompt, skip_special_tokens=False))


def test_markdown_is_shown_and_sent_back_as_it_was_written(visit: Any, speak: Speak) -> None:
    page = visit(speak(HERMES, CODE).url)
    asked = asked_bodies(page)
    answer = ask(page, "hi *there*")
    answer.locator(".figures").wait_for()
    assert page.locator(".message.user").inner_text() == "hi *there*"  # what the user wrote is no markdown
    assert answer.locator(".code pre").text_content() == "x = 1\n\ny = '<b>'"
    assert answer.locator(".code .head span").inner_text() == "py"
    assert answer.locator("em").inner_text() == "now"
    whole_answer(page, "again")
    assert asked[1]["messages"][1] == {"role": "assistant", "content": CODE}


def test_thoughts_are_folded(visit: Any, speak: Speak) -> None:
    page = visit(speak(HERMES, THOUGHT).url)
    asked = asked_bodies(page)
    answer = ask(page, "hi")
    answer.locator(".figures").wait_for()
    assert answer.locator("details.thought > summary").inner_text().startswith("Thought for ")
    assert not answer.locator(".thought strong").is_visible()
    assert answer.locator("> .text").inner_text() == "It rains."
    answer.locator("summary").focus()
    page.keyboard.press("Enter")
    assert answer.locator(".thought strong").inner_text() == "weather"
    whole_answer(page, "again")
    assert asked[1]["messages"][1]["content"] == "It *rains*."


def test_the_system_prompt_reaches_the_model(visit: Any, speak: Speak) -> None:
    frontend = speak(HERMES, "hello")
    page = visit(frontend.url)
    page.click("#settings summary")
    page.fill("#system", "Be brief.")
    assert page.inner_text("#settings-note") == "(set: system)"
    whole_answer(page, "hi")
    assert "<|im_start|>system\nBe brief.<|im_end|>" in prompt(frontend)
    whole_answer(page, "again")
    assert prompt(frontend).count("Be brief.") == 1
    page.fill("#system", "")
    page.click("#clear")
    whole_answer(page, "hi")
    assert "Be brief." not in prompt(frontend)


def test_calls_are_folded_and_their_results_asked_for(visit: Any, speak: Speak) -> None:
    frontend = speak(HERMES, f"Let me look.\n{CALL}\n{CALL.replace('Paris', 'Rome')}")
    page = visit(frontend.url)
    asked = asked_bodies(page)
    page.click("#settings summary")
    page.fill("#tools", json.dumps([TOOL]))
    answer = ask(page, "rain?")
    answer.locator(".figures").wait_for()
    assert asked[0]["tools"] == [TOOL]
    assert answer.locator("details.call > summary").all_inner_texts() == ["Calls weather", "Calls weather"]
    assert not answer.locator(".call pre").first.is_visible()
    answer.locator("summary").first.click()
    assert json.loads(answer.locator(".call pre").first.inner_text()) == {"city": "Paris"}
    frontend.backend.script = lambda tokens: iter(
        build_tokenizer().encode("Dry.", add_special_tokens=False).ids
    )
    for result in ("dry in Paris", "wet in Rome"):
        assert page.get_attribute("#question", "placeholder").startswith("The result of weather")
        assert len(asked) == 1
        page.fill("#question", result)
        page.press("#question", "Enter")
    page.locator(".figures").nth(1).wait_for()
    (_, said, *results) = asked[1]["messages"]
    assert said["content"].strip() == "Let me look."
    ids = [call["id"] for call in said["tool_calls"]]
    assert [json.loads(call["function"]["arguments"])["city"] for call in said["tool_calls"]] == [
        "Paris",
        "Rome",
    ]
    assert results == [
        {"role": "tool", "tool_call_id": ids[0], "content": "dry in Paris"},
        {"role": "tool", "tool_call_id": ids[1], "content": "wet in Rome"},
    ]
    assert page.locator(".message.assistant").last.locator(".text").inner_text() == "Dry."
    assert page.get_attribute("#question", "placeholder").startswith("Ask the model")


def test_tools_that_are_no_json_are_refused_before_anything_is_sent(visit: Any, speak: Speak) -> None:
    page = visit(speak(HERMES, "hello").url)
    asked = asked_bodies(page)
    page.click("#settings summary")
    page.fill("#tools", "[{")
    assert "the tools must be a JSON array" in ask(page, "hi").inner_text()
    page.fill("#tools", "")
    assert whole_answer(page, "hi").startswith("hello")
    assert [body["messages"] for body in asked] == [[{"role": "user", "content": "hi"}]]


@pytest.mark.parametrize("is_secure", [True, False])
def test_copying(visit: Any, speak: Speak, is_secure: bool) -> None:
    """Also where the browser has no navigator.clipboard, as on a page over HTTP from another host."""
    page = visit(speak(HERMES, CODE).url)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    answer = ask(page, "hi")
    answer.locator(".figures").wait_for()
    if not is_secure:
        page.evaluate("window.kept = navigator.clipboard; Object.defineProperty(navigator, 'clipboard', "
                      "{value: undefined, configurable: true})")  # fmt: skip
    for name, expected in (("Copy the code", "x = 1\n\ny = '<b>'"), ("Copy the answer", CODE)):
        button = answer.get_by_role("button", name=name)
        button.focus()
        button.evaluate(NOTE_COPIED)
        page.keyboard.press("Enter")
        page.evaluate("window.copied")
        assert button.evaluate("one => one === document.activeElement")
        assert page.evaluate("(window.kept ?? navigator.clipboard).readText()") == expected
    button.filter(has_text="Copy").wait_for()


@pytest.mark.parametrize("how", ["Escape", "button"])
def test_stopping_cancels_the_request_and_keeps_what_was_said(visit: Any, speak: Speak, how: str) -> None:
    frontend = speak(HERMES, "one two three four five six seven eight nine ten")
    backend, whole = frontend.backend, frontend.backend.script

    def pauses(prompt: list[int]) -> Iterator[int]:  # until it is stopped, however long that takes
        for position, token in enumerate(whole(prompt)):
            if position == 4:
                backend.stalled.set()
            yield token

    backend.script = pauses
    page = visit(frontend.url)
    asked = asked_bodies(page)
    answer = ask(page, "count")
    wait_until(lambda: answer.inner_text().startswith("one"))
    assert page.inner_text("#send") == "Stop"
    (row,) = backend.accepted[-1:]
    if how == "button":
        page.get_by_role("button", name="Stop").click()
    else:
        page.keyboard.press("Escape")
    answer.locator(".figures").wait_for()
    wait_until(lambda: backend.open_rows() == 0)
    assert row.steps < 10  # and no step was for it any more
    assert page.inner_text("#send") == "Send"
    assert focused(page) == "question"
    backend.script = whole
    backend.stalled.clear()
    whole_answer(page, "go on")
    said = asked[1]["messages"][1]["content"]
    assert said.startswith("one")
    assert not said.endswith("ten")
