"""How a response gets into the store: when its request has a slot, and again with its answer."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from nic_frontend.api.answer import Usage
from nic_frontend.api.responses_answer import ResponsesAnswer, failure_of
from nic_frontend.errors import ApiError
from nic_frontend.http.long_json import pieces
from nic_frontend.store.records import Ending, Item, Record, Unknown
from nic_frontend.store.store import OwnResponses

log = logging.getLogger(__name__)

SLACK_S = 60.0  # beyond the time that a response may take, until nobody believes in it any more


class Kept:
    """One response. `within_s` is how long it may take; its client waits for it, or not: `in_background`."""

    def __init__(
        self,
        store: OwnResponses,
        answer: ResponsesAnswer,
        previous: str | None,
        inputs: list[Item],
        within_s: float,
        *,
        in_background: bool,
    ) -> None:
        self._store = store
        self._answer = answer
        self._previous = previous
        self._inputs = inputs
        self._within_s = within_s
        self.in_background = in_background
        self.is_begun = asyncio.Event()  # it has a slot, and its input is stored, or cannot be
        self.is_open = False  # it is in the store, and its answer is not
        self.on_begun: Callable[[], None] = lambda: None  # its input needs no memory any more

    @property
    def id(self) -> str:
        return self._answer.id

    @property
    def input_bytes(self) -> int:
        """Of the input that is not in the store yet."""
        return sum(len(item.content) for item in self._inputs)

    @property
    def has_answered(self) -> bool:
        """A token has come."""
        return any(request.n_tokens for request in self._answer.requests)

    def state(self) -> dict[str, Any]:
        """The response, of which nothing is known yet."""
        return self._answer.state("queued" if self.in_background else "in_progress")

    async def begin(self) -> None:
        """Its request has a slot. A client that waits gets its answer also where that cannot be stored; the
        answer says so. In the background, ApiError 503 is raised then.
        """
        status, body, _ = await taken_apart(self.state())
        record = Record(
            self.id, status, body, self._previous, self._within_s + SLACK_S, self._inputs,
            in_background=self.in_background,
        )  # fmt: skip
        try:
            await self._store.insert(record)
            self.is_open = True
        except ApiError:
            if self.in_background:
                raise
            self._answer.stored = False
        except asyncio.CancelledError:
            self.is_open = True  # it may have been kept all the same
            raise
        self._inputs = []
        self.on_begun()
        self.is_begun.set()

    async def keep(self, usage: Usage) -> None:
        """The response is complete. Raises as `begin` does."""
        if not self.is_open:
            return
        status, body, outputs = await taken_apart(self._answer.whole(usage))
        self.is_open = False
        try:
            await self._store.finish(self.id, Ending(status, body, outputs=outputs))
        except ApiError:
            if self.in_background:
                raise
            self.is_open, self._answer.stored = True, False
        except asyncio.CancelledError:
            self.is_open = not self.in_background
            raise

    async def fail(self, error: ApiError) -> None:
        """In the background."""
        self.is_open = False
        failure = json.dumps(failure_of(error)).encode()
        await self._store.finish(self.id, Ending("failed", error=failure))

    async def forget(self) -> None:
        """Its client has left, or was told that it failed or is not stored. One that is complete stays."""
        if not self.is_open:
            return
        self.is_open = False
        try:
            await self._store.delete(self.id)
        except Unknown:
            pass  # its client has deleted it, or it was never kept
        except ApiError as error:
            log.warning("the response %s, which has no answer, stays in the store: %s", self.id, error)


async def taken_apart(response: dict[str, Any]) -> tuple[str, bytes, list[Item]]:
    """Its status, its body and its output items, as a Record has them. Log-probabilities are told once: they
    would take many times the space of the text.
    """
    head = {name: value for name, value in response.items() if name not in ("status", "error", "output")}
    outputs = []
    for item in response["output"]:
        if item["type"] == "message":
            item = {**item, "content": [{**part, "logprobs": []} for part in item["content"]]}
        outputs.append(Item(item["id"], await _written(item)))
    return response["status"], await _written(head), outputs


async def _written(value: dict[str, Any]) -> bytes:
    """With turns for other calls, because it may be long."""
    parts = []
    for piece in pieces(value, partial(json.dumps, ensure_ascii=False)):
        parts.append(piece.encode(errors="backslashreplace"))
        await asyncio.sleep(0)
    return b"".join(parts)
