"""The page in windows of several widths, and behind a path."""

from __future__ import annotations

from typing import Any

import pytest
from chatting import whole_answer
from harness import Frontend, Speak
from templates import HERMES


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 900, 1000, 1200, 1440])
def test_buttons_stay_together(visit: Any, frontend: Frontend, width: int) -> None:
    page = visit(frontend.url, viewport={"width": width, "height": 800})
    page.wait_for_selector("#phase.good")
    # All at one moment: what the page is told of the machine may move them.
    tops = page.evaluate(
        "(names) => names.map((name) => document.querySelector(name).getBoundingClientRect().top)",
        ["#clear", "#send", "#temperature"],
    )
    assert abs(tops[0] - tops[1]) < 1
    if width >= 1200:
        assert abs(tops[1] - tops[2]) < 10  # and the row is one line


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 800, 1440])
def test_it_fits_narrow_and_wide_windows(visit: Any, frontend: Frontend, width: int) -> None:
    page = visit(frontend.url, viewport={"width": width, "height": 800}, color_scheme="dark")
    page.wait_for_selector("#phase.good")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_it_works_behind_a_path(visit: Any, speak: Speak) -> None:
    """As behind a proxy that serves several programs under one name: nothing is asked of the others."""
    frontend = speak(HERMES, "hello **there**", root_path="/behind/here")
    page = visit(f"{frontend.url}/behind/here")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    page.wait_for_selector("#phase.good")
    assert whole_answer(page, "hi").startswith("hello there")
    page.click("#api-link")
    page.wait_for_url(f"{frontend.url}/behind/here/docs")
    assert len(asked) > 10
    assert all(url.startswith(f"{frontend.url}/behind/here/") for url in asked)
