"""What a user does with the page in a browser, and what is seen of it."""

from __future__ import annotations

from typing import Any


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


def asked_bodies(page: Any) -> list[dict[str, Any]]:
    """The bodies of the chat requests that the page will send."""
    asked: list[dict[str, Any]] = []

    def note(request: Any) -> None:
        if request.url.endswith("/chat/completions"):
            asked.append(request.post_data_json)

    page.on("request", note)
    return asked


def focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.id"))
