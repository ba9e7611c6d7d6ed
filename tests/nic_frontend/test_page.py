"""The page at `/`: what it may do in a browser, what it shows, and that it works in one."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import COMPLETION, Frontend, Speak, StartBackend, StartFrontend, wait_until
from limits import WAIT_S
from mock_backend import MockBackend
from templates import HERMES

from nic_frontend.observe import live
from nic_frontend.observe.live import cpu_seconds, shown_steps
from ringbuffer import abi

WAIT_MS = WAIT_S * 1000


def policy(frontend: Frontend) -> dict[str, list[str]]:
    header = frontend.client.get("/").headers["content-security-policy"]
    return {part.split()[0]: part.split()[1:] for part in header.split(";")}


def test_nothing_but_the_pages_own_script_and_style_may_run(frontend: Frontend) -> None:
    page = frontend.client.get("/").text
    rules = policy(frontend)
    assert rules["default-src"] == ["'none'"]
    assert rules["connect-src"] == ["'self'"]
    for name in ("style", "script"):
        (content,) = re.findall(f"<{name}>(.*?)</{name}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[f"{name}-src"] == [f"'sha256-{digest}'"]
    assert not re.findall(r"\s(?:on\w+|style)=\"", page)
    assert not re.findall(r"(?:src|href)=\"(?!data:|/)", page)
    assert not re.findall(r"innerHTML|insertAdjacentHTML|document\.write|\beval\b", page)


def test_the_page_needs_no_key_and_the_machine_does(
    backend: MockBackend, start_frontend: StartFrontend
) -> None:
    frontend = start_frontend(backend, api_key="secret")
    assert frontend.client.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert frontend.client.get("/live").status_code == 401
    state = frontend.client.get("/live", headers={"authorization": "Bearer secret"})
    assert state.json()["model"] == "tiny"
    assert state.headers["cache-control"] == "no-store"


def test_the_machine_live(
    start_backend: StartBackend, start_frontend: StartFrontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "REUSE_S", 0.0)
    backend = start_backend(n_leases=2)
    frontends = [start_frontend(backend), start_frontend(backend)]
    for frontend in frontends:
        frontend.client.post("/v1/completions", json={**COMPLETION, "ignore_eos": True})
    wait_until(lambda: frontends[0].client.get("/live").json()["counters"]["generation_tokens"] == 4)
    state = frontends[0].client.get("/live").json()
    assert state["frontends"] == 2
    assert state["phase"] == "SERVING"
    assert sum(state["slots"].values()) == state["limits"]["n_slots"] == 64
    assert sum(state["histograms"]["time_to_first_token_seconds"]["counts"]) == 2
    backend.stalled.set()
    with frontends[0].client.stream("POST", "/v1/completions", json={**COMPLETION, "stream": True}):
        wait_until(lambda: frontends[1].client.get("/live").json()["slots"]["prefill_processing"] == 1)
    backend.stalled.clear()


def test_who_asks_at_the_same_time_is_answered_with_one_reading(frontend: Frontend) -> None:
    first = frontend.client.get("/live").json()
    assert frontend.client.get("/live").json()["time_s"] == first["time_s"]
    time.sleep(live.REUSE_S)
    assert frontend.client.get("/live").json()["time_s"] > first["time_s"]


def test_steps_are_shown_in_order_without_records_that_make_no_sense() -> None:
    records = np.zeros(abi.SHOWN_STEPS, abi.ShownStep)
    last = 200
    for number in range(last - abi.SHOWN_STEPS + 1, last + 1):
        records[number % abi.SHOWN_STEPS] = (number, number * 100, number * 100 + 90, 7 | 3 << 32)
    records[150 % abi.SHOWN_STEPS] = (150, 20000, 100, 0)  # half of it another's
    records[151 % abi.SHOWN_STEPS] = (20, 1, 2, 0)  # of long ago
    shown = shown_steps(records)
    assert [step["id"] for step in shown] == [n for n in range(137, 201) if n not in (150, 151)]
    assert shown[0] == {"id": 137, "start_ns": 13700, "ns": 90, "prompt_tokens": 7, "decoding": 3}
    assert shown_steps(np.zeros(abi.SHOWN_STEPS, abi.ShownStep)) == []


def test_the_cpu_time_of_a_process_and_of_none(tmp_path: Path) -> None:
    before = cpu_seconds(1)
    assert before is None or before >= 0
    assert cpu_seconds(2**22 + 1) is None


# ---------------------------------------------------------------- in a browser

browser_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: scripts/setup test")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
in_a_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="needs chromium (Debian: apt-get install chromium)"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browser_api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """A function that opens a page; at the end nothing may have been refused or have failed in any."""
    complaints: list[str] = []
    pages: list[Any] = []

    def open_page(url: str, **options: Any) -> Any:
        page = browser.new_page(**options)
        pages.append(page)
        page.set_default_timeout(WAIT_MS)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(url)
        return page

    yield open_page
    for page in pages:
        page.close()
    answers = "Failed to load resource: "  # a status other than 200, or the server has ended
    assert [text for text in complaints if not text.startswith(answers)] == []


def ask(page: Any, question: str) -> Any:
    """Sends a question; the message that comes."""
    n = page.locator(".message").count()
    page.fill("#question", question)
    page.press("#question", "Enter")
    page.locator(".message").nth(n + 1).wait_for()
    return page.locator(".message").nth(n + 1)


def whole_answer(page: Any, question: str) -> str:
    """Sends a question; the text of the answer once it has ended, which its figures tell."""
    answer = ask(page, question)
    answer.locator(".figures").wait_for()
    return str(answer.inner_text())


@pytest.mark.slow
@in_a_browser
def test_a_chat_and_what_it_makes_the_machine_do(visit: Any, speak: Speak) -> None:
    frontend = speak(HERMES, "hello <b>world</b>")
    page = visit(frontend.url)
    page.wait_for_selector("#phase.good")
    assert "tiny on mock" in page.inner_text("#what")
    answer = ask(page, "hi")
    answer.locator(".figures").wait_for()
    assert answer.inner_text().startswith("hello <b>world</b>")  # as text
    assert re.search(r"\d+ tokens · first after [\d.]+ ms", answer.inner_text())
    ask(page, "and again").locator(".figures").wait_for()
    wait_until(lambda: page.inner_text("#out-rate")[0] in "123456789")
    page.click("#clear")
    assert page.locator(".message").count() == 0


@pytest.mark.slow
@in_a_browser
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
@in_a_browser
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


def chats_asked(page: Any) -> list[list[str]]:
    """What the messages of each request that the page will send say."""
    asked: list[list[str]] = []

    def note(request: Any) -> None:
        if request.url.endswith("/chat/completions"):
            asked.append([message["content"] for message in request.post_data_json["messages"]])

    page.on("request", note)
    return asked


def focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.id"))


@pytest.mark.slow
@in_a_browser
def test_a_new_chat_amid_an_answer_knows_nothing_of_the_old_one(visit: Any, speak: Speak) -> None:
    frontend = speak(HERMES, "one two three four five six seven eight nine ten")
    backend = frontend.backend
    backend.step_s = 0.1
    page = visit(frontend.url)
    asked = chats_asked(page)
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
    assert asked == [["first"], ["second"], ["second", told, "third"]]
    assert [text.split("\n")[0] for text in page.locator(".message").all_inner_texts()][::2] == [
        "second",
        "third",
    ]


@pytest.mark.slow
@in_a_browser
def test_a_new_chat_before_the_first_token(visit: Any, speak: Speak) -> None:
    """Also several in a row: what was asked is cancelled, and no error of it is shown."""
    frontend = speak(HERMES, "hello")
    backend = frontend.backend
    page = visit(frontend.url)
    asked = chats_asked(page)
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
    assert asked[-1] == ["d"]
    assert page.locator(".message.error").count() == 0


@pytest.mark.slow
@in_a_browser
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
@in_a_browser
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
    assert '"openapi": "3.1.0"' in opened.value.content()
    opened.value.close()
    page.click("#api-close")
    page.reload()  # the tab keeps the key
    page.click("#api-link")
    page.wait_for_selector("#api[open] >> text=POST /v1/chat/completions")


@pytest.mark.slow
@in_a_browser
def test_the_description_of_the_api_without_a_key_is_a_link(visit: Any, frontend: Frontend) -> None:
    page = visit(frontend.url)
    page.wait_for_selector("#phase.good")
    page.click("#api-link")
    page.wait_for_url("**/docs")


@pytest.mark.slow
@in_a_browser
@pytest.mark.parametrize("width", [360, 900, 1000, 1200, 1440])
def test_buttons_stay_together(visit: Any, frontend: Frontend, width: int) -> None:
    page = visit(frontend.url, viewport={"width": width, "height": 800})
    tops = [page.locator(name).bounding_box()["y"] for name in ("#clear", "#send", "#temperature")]
    assert abs(tops[0] - tops[1]) < 1
    if width >= 1200:
        assert abs(tops[1] - tops[2]) < 10  # and the row is one line


@pytest.mark.slow
@in_a_browser
@pytest.mark.parametrize("width", [360, 800, 1440])
def test_it_fits_narrow_and_wide_windows(visit: Any, frontend: Frontend, width: int) -> None:
    page = visit(frontend.url, viewport={"width": width, "height": 800}, color_scheme="dark")
    page.wait_for_selector("#phase.good")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
