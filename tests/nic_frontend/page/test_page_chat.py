"""Chats on the page, in a browser: asked, answered, stopped, begun anew, with a key and without."""

from __future__ import annotations

import re
from typing import Any

import pytest
from chatting import ask, asked_bodies, focused, whole_answer
from harness import Frontend, Speak, StartBackend, StartFrontend, wait_until
from limits import WAIT_S
from templates import HERMES


@pytest.mark.slow
def test_a_chat_and_what_it_makes_the_machine_do(visit: Any, speak: Speak) -> None:
    frontend = speak(HERMES, "hello <b>world</b>")
    page = visit(frontend.url)
    page.wait_for_selector("#phase.good")
    assert "tiny on mock" in page.inner_text("#what")
    answer = ask(page, "hi")
    answer.locator(".figures").wait_for()
    assert answer.inner_text().startswith("hello <b>world</b>")  # as text
    assert re.search(r"\d+ tokens · first after [\d.,]+ m?s\b", answer.inner_text())
    ask(page, "and again").locator(".figures").wait_for()
    wait_until(lambda: page.inner_text("#out-rate")[0] in "123456789")
    page.click("#clear")
    assert page.locator(".message").count() == 0


@pytest.mark.slow
def test_a_server_with_a_key_is_asked_for_it(visit: Any, speak: Speak) -> None:
    frontend = speak(HERMES, "hello", api_key="secret")
    page = visit(frontend.url)
    page.wait_for_selector("#key-row:not([hidden])")
    assert "incorrect API key" in ask(page, "hi").inner_text()
    page.fill("#key", "secret")
    page.press("#key", "Tab")
    page.wait_for_selector("#phase.good")
    assert whole_answer(page, "hi").startswith("hello")


@pytest.mark.slow
def test_an_answer_can_be_stopped_and_an_error_is_shown(
    visit: Any, start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    backend = start_backend(step_s=0.05)
    frontend = start_frontend(backend)
    page = visit(frontend.url)
    page.fill("#max-tokens", "99999")
    assert "max_tokens" in ask(page, "more than the context").inner_text()
    page.check("#plain")
    page.fill("#max-tokens", "400")
    answer = ask(page, "go on")
    wait_until(lambda: len(answer.inner_text()) > 3)
    page.click("#send")
    answer.locator(".figures").wait_for()
    wait_until(lambda: backend.open_rows() == 0)
    assert page.inner_text("#send") == "Send"


@pytest.mark.slow
def test_a_new_chat_amid_an_answer_knows_nothing_of_the_old_one(visit: Any, speak: Speak) -> None:
    frontend = speak(HERMES, "one two three four five six seven eight nine ten")
    backend = frontend.backend
    backend.step_s = 0.1
    page = visit(frontend.url)
    asked = asked_bodies(page)
    answer = ask(page, "first")
    wait_until(lambda: answer.inner_text().startswith("one"))
    page.click("#clear")
    assert page.locator(".message").count() == 0
    assert page.locator(".hint").is_visible()
    assert page.inner_text("#send") == "Send"
    wait_until(lambda: backend.open_rows() == 0)  # the server was told
    backend.step_s = 0.001
    ask(page, "second").locator(".figures").wait_for()
    ask(page, "third").locator(".figures").wait_for()
    told = "one two three four five six seven eight nine ten"
    said = [[message["content"] for message in body["messages"]] for body in asked]
    assert said == [["first"], ["second"], ["second", told, "third"]]
    assert [text.split("\n")[0] for text in page.locator(".message").all_inner_texts()][::2] == [
        "second",
        "third",
    ]


@pytest.mark.slow
def test_a_new_chat_before_the_first_token(visit: Any, speak: Speak) -> None:
    """Also several in a row: what was asked is cancelled, and no error of it is shown."""
    frontend = speak(HERMES, "hello")
    backend = frontend.backend
    page = visit(frontend.url)
    asked = asked_bodies(page)
    backend.stalled.set()
    for question in ("a", "b", "c"):
        page.fill("#question", question)
        page.press("#question", "Enter")
        page.locator(".message.user").wait_for()
        page.click("#clear")
        assert page.locator(".message").count() == 0
    wait_until(lambda: backend.open_rows() == 0)
    backend.stalled.clear()
    assert whole_answer(page, "d").startswith("hello")
    assert [message["content"] for message in asked[-1]["messages"]] == ["d"]
    assert page.locator(".message.error").count() == 0


@pytest.mark.slow
def test_the_input_has_the_focus(visit: Any, speak: Speak) -> None:
    page = visit(speak(HERMES, "hello").url)
    assert focused(page) == "question"
    page.keyboard.type("hi")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("there")
    assert page.input_value("#question") == "hi\nthere"
    page.keyboard.press("Enter")
    page.locator(".figures").wait_for()
    assert page.locator(".message.user").inner_text() == "hi\nthere"
    assert focused(page) == "question"
    page.keyboard.type("again")
    page.click("#send")
    page.locator(".figures").nth(1).wait_for()
    assert focused(page) == "question"
    page.click("#clear")
    assert focused(page) == "question"


@pytest.mark.slow
def test_the_description_of_the_api_can_be_read_with_a_key(visit: Any, speak: Speak) -> None:
    page = visit(speak(HERMES, "hello", api_key="secret").url)
    page.wait_for_selector("#key-row:not([hidden])")
    page.click("#api-link")
    wait_until(lambda: focused(page) == "key")  # it is asked for, and the page stays
    page.keyboard.type("secret")
    page.keyboard.press("Enter")
    page.click("#api-link")
    page.wait_for_selector("#api[open] >> text=POST /v1/chat/completions")
    with page.expect_popup() as opened:
        page.click("#api-text >> text=openapi.json")
    opened.value.wait_for_load_state(timeout=WAIT_S * 1000)  # it is told of when it begins to load
    assert '"openapi": "3.1.0"' in opened.value.content()
    opened.value.close()
    page.click("#api-close")
    page.reload()  # the tab keeps the key
    page.click("#api-link")
    page.wait_for_selector("#api[open] >> text=POST /v1/chat/completions")


@pytest.mark.slow
def test_the_description_of_the_api_without_a_key_is_a_link(visit: Any, frontend: Frontend) -> None:
    page = visit(frontend.url)
    page.wait_for_selector("#phase.good")
    page.click("#api-link")
    page.wait_for_url("**/docs")
