"""How a response gets into the store: as a whole when it is complete, or, in the background, step by step."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from typing import Any

from nic_frontend.api.answer import Usage
from nic_frontend.api.responses_answer import ResponsesAnswer, failure_of
from nic_frontend.errors import ApiError
from nic_frontend.http.long_json import pieces
from nic_frontend.store.records import Ending, Item, Record
from nic_frontend.store.store import OwnResponses

log = logging.getLogger(__name__)

SLACK_S = 60.0  # beyond the time that a response may take, until nobody believes in it any more


class Kept:
    """One response. `within_s` is how long it may take in the background; None: its client waits for it."""

    def __init__(
        self,
        store: OwnResponses,
        answer: ResponsesAnswer,
        previous: str | None,
        inputs: list[Item],
        within_s: float | None,
    ) -> None:
        self._store = store
        self._answer = answer
        self._previous = previous
        self._inputs = inputs
        self._within_s = within_s
        self.ended = False  # in the background: nothing more is to be done for it

    @property
    def in_background(self) -> bool:
        return self._within_s is not None

    @property
    def id(self) -> str:
        return self._answer.id

    @property
    def input_bytes(self) -> int:
        """Of the input that is not in the store yet."""
        return sum(len(item.content) for item in self._inputs)

    @property
    def is_submitted(self) -> asyncio.Event:
        return self._answer.is_submitted

    @property
    def has_begun(self) -> bool:
        """A token has come."""
        return bool(self._answer.parts.listed)

    async def queue(self) -> dict[str, Any]:
        """The response, of which nothing is known yet. Raises ApiError 503 where it cannot be stored."""
        assert self._within_s is not None
        response = self._answer.state("queued")
        _, body, _ = await taken_apart(response)
        record = Record(
            self.id, "queued", body, self._previous, self._within_s + SLACK_S, self._inputs
        )  # fmt: skip
        await self._store.insert(record)
        self._inputs = []
        return response

    async def keep(self, usage: Usage) -> None:
        """The response is complete. One whose client waits is worth more to it than its record is: where it
        cannot be stored, it says so. In the background, ApiError 503 is raised then.
        """
        status, body, outputs = await taken_apart(self._answer.whole(usage))
        if self.in_background:
            self.ended = True
            await self._store.finish(self.id, Ending(status, body, outputs=outputs))
            return
        record = Record(self.id, status, body, self._previous, None, self._inputs, outputs)
        try:
            await self._store.insert(record)
        except ApiError:
            self._answer.stored = False

    async def fail(self, error: ApiError) -> None:
        """In the background."""
        self.ended = True
        failure = json.dumps(failure_of(error)).encode()
        await self._store.finish(self.id, Ending("failed", error=failure))

    async def forget(self) -> None:
        """In the background: it was never submitted, and nobody knows its id."""
        self.ended = True
        await self._store.delete(self.id)


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
