"""A server whose answers differ, in whatever form they are asked for, and that remembers them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bad_server import DONE, END, HEAD, BadServer, Behaviour, Writer, chunk, event

FIRST_ID = 5000  # of answers: no prompt has such tokens
PAGE = 16  # tokens that a cache keeps together


class TalkingServer(BadServer):
    """`fault(body, number)` names another behaviour for a request; None answers it.

    Request i is `bodies[i]`, came at `times[i]` and was answered with the tokens `answers[i]`. A prefix is
    reported as cached as far as whole pages of it were a prompt before. With `tells` False the answers are as
    from a server that knows OpenAI's fields alone.
    """

    def __init__(
        self,
        fault: Callable[[dict[str, Any], int], Behaviour | None] = lambda body, number: None,
        tells: bool = True,
    ) -> None:
        super().__init__(self._answer, warmup=0)
        self._fault = fault
        self._tells = tells
        self._seen: set[str] = set()
        self._said = 0
        self.answers: dict[int, list[int]] = {}
        self.times: list[float] = []

    async def _answer(self, writer: Writer, n: int) -> None:
        number, body = len(self.bodies) - 1, self.bodies[-1]
        self.times.append(time.monotonic())
        if (behaviour := self._fault(body, number)) is not None:
            await behaviour(writer, n)
            return
        cached = self._cached(body)
        answer = self.answers[number] = list(range(FIRST_ID + self._said, FIRST_ID + self._said + n))
        self._said += n
        writer.write(HEAD)
        if "messages" in body:
            role = {"role": "assistant", "content": ""}
            writer.write(chunk(event({"choices": [{"index": 0, "delta": role, "finish_reason": None}]})))
        for token in answer:
            writer.write(chunk(self._event(body, token)))
            await writer.drain()
        usage: dict[str, Any] = {"prompt_tokens": len(units(body)), "completion_tokens": n}
        if self._tells and cached:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        writer.write(chunk(event({"choices": [], "usage": usage}) + DONE) + END)

    def _event(self, body: dict[str, Any], token: int) -> bytes:
        text = said(token)
        shown: dict[str, Any] = {"delta": {"content": text}} if "messages" in body else {"text": text}
        if self._tells and body.get("return_token_ids"):
            shown["token_ids"] = [token]
        return event({"choices": [{"index": 0, **shown, "finish_reason": None}]})

    def _cached(self, body: dict[str, Any]) -> int:
        """Tokens of the prompt that were asked before; then all of its pages are seen."""
        parts = units(body)
        pages = [str(parts[: end + PAGE]) for end in range(0, len(parts) - PAGE + 1, PAGE)]
        hits = sum(page in self._seen for page in pages)
        self._seen.update(pages)
        return hits * PAGE


def said(token: int) -> str:
    return f" w{token}"


def units(body: dict[str, Any]) -> list[Any]:
    """What stands for tokens here: ids, or words."""
    if "messages" in body:
        return [word for message in body["messages"] for word in message["content"].split()]
    prompt = body["prompt"]
    return list(prompt.split() if isinstance(prompt, str) else prompt)
