"""A browser, and pages in it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from limits import WAIT_S
from needs import skip_if_missing, with_need

WAIT_MS = WAIT_S * 1000
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: scripts/setup test")
    if CHROMIUM is None:
        command = with_need("chromium", "true")
        skip_if_missing("chromium", subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S))
    with api.sync_playwright() as driver:
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
