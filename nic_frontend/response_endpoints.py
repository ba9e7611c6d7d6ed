"""What the URLs below /v1/responses/ do: they find, delete and cancel stored responses."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar
from urllib.parse import parse_qs

from nic_frontend.api.memory import FLAG
from nic_frontend.errors import ApiError, bad_request
from nic_frontend.http.asgi import Receive, Scope, Send, respond, respond_json
from nic_frontend.observe.request_record import record_of
from nic_frontend.service import Service
from nic_frontend.store.records import NotCancelled, Unknown
from nic_frontend.store.store import OwnResponses
from ringbuffer.model_file import shown

T = TypeVar("T")

RESPONSES = "/v1/responses/"  # and the response's id
RESPONSE = RESPONSES + "{response_id}"
CANCEL = RESPONSE + "/cancel"
INPUT_ITEMS = RESPONSE + "/input_items"
MOST_ITEMS = 100  # of one answer
USUAL_ITEMS = 20
MOST_QUERIES = 32
SENT_PER_S = 256 << 20  # bytes that are found and sent in a second of a processor

Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


def pattern_of(path: str) -> str | None:
    """That of the endpoints below which a path belongs to; None where it belongs to none."""
    if not path.startswith(RESPONSES):
        return None
    id, slash, rest = path.removeprefix(RESPONSES).partition("/")
    return f"{RESPONSE}{slash}{rest}" if id else None


class ResponseEndpoints:
    def __init__(self, service: Service) -> None:
        self._service = service
        self.routes: dict[str, dict[str, Handler]] = {
            RESPONSE: {"GET": self._get, "DELETE": self._delete},
            CANCEL: {"POST": self._cancel},
            INPUT_ITEMS: {"GET": self._input_items},
        }

    async def _get(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = queries(scope)
        if asked.get("stream", "false") != "false":
            raise bad_request(
                "'stream' is not supported for stored responses: ask without it until the status is neither "
                "queued nor in_progress",
                "stream",
                "unsupported_parameter",
            )
        await self._send(scope, send, await self._found(scope, lambda own, id: own.read(id)))

    async def _delete(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._found(scope, lambda own, id: own.delete(id))
        await respond_json(send, 200, {"id": id_of(scope), "object": "response", "deleted": True})

    async def _cancel(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._found(scope, lambda own, id: own.cancel(id))
        except NotCancelled as error:
            kind = f"response that is already {error.status}" if error.background else "synchronous response"
            raise bad_request(f"Cannot cancel a {kind}.", "response_id", "invalid_value") from None
        await self._send(scope, send, await self._found(scope, lambda own, id: own.read(id)))

    async def _input_items(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = queries(scope)
        order, after, limit = asked.get("order", "desc"), asked.get("after"), asked.get("limit")
        if order not in ("asc", "desc"):
            raise bad_request(f"'order' must be asc or desc, it is {shown(order)}", "order", "invalid_value")
        most = USUAL_ITEMS if limit is None else number_of(limit)
        newest = order == "desc"
        page = await self._found(scope, lambda own, id: own.inputs(id, after, most, newest_first=newest))
        first, last = (page.items[0].id, page.items[-1].id) if page.items else (None, None)
        head = {"object": "list", "first_id": first, "last_id": last, "has_more": page.has_more}
        await self._send(scope, send, with_data(head, [item.content for item in page.items]))

    async def _send(self, scope: Scope, send: Send, found: bytes) -> None:
        """It counts as bodies do until its client has taken it. Its key pays and is not refused: it may ask
        for what it has in the background while that is all that it may have open.
        """
        service, key = self._service, record_of(scope).key
        with service.bodies.new() as held, service.budgets.working(key, admitted=True) as pay:
            held.grow(len(found))
            pay(len(found) / SENT_PER_S, False)
            await respond(send, 200, found)

    async def _found(self, scope: Scope, ask: Callable[[OwnResponses, str], Awaitable[T]]) -> T:
        """What `ask` finds among the responses of whoever asks. Raises ApiError 404."""
        id, store = id_of(scope), self._service.store
        if store is None:
            raise ApiError(
                404, f"Response with id {shown(id)} not found: this server stores none ({FLAG})",
                param="response_id",
            )  # fmt: skip
        try:
            return await ask(store.of(owner_of(scope)), id)
        except Unknown as error:
            what = "Response" if error.id == id else "Item"
            raise ApiError(404, f"{what} with id {shown(error.id)} not found.", param="response_id") from None


def owner_of(scope: Scope) -> bytes:
    """Whose responses a request finds: those of its API key, or everybody's where there are no keys."""
    key = record_of(scope).key
    return key.digest if key is not None else b""


def id_of(scope: Scope) -> str:
    path: str = scope["path"]
    return path.removeprefix(RESPONSES).partition("/")[0]


def queries(scope: Scope) -> dict[str, str]:
    """The last value of each name."""
    text = scope["query_string"].decode("latin-1")
    try:
        return {name: values[-1] for name, values in parse_qs(text, max_num_fields=MOST_QUERIES).items()}
    except ValueError:
        raise bad_request(f"the URL asks for more than {MOST_QUERIES} things", code="invalid_value") from None


def number_of(limit: str) -> int:
    """Raises ApiError 400."""
    if limit.isascii() and limit.isdigit() and len(limit) <= 3 and 1 <= int(limit) <= MOST_ITEMS:
        return int(limit)
    message = f"'limit' must be an integer from 1 to {MOST_ITEMS}, it is {shown(limit)}"
    raise bad_request(message, "limit", "invalid_value")


def with_data(head: Mapping[str, object], contents: list[bytes]) -> bytes:
    """A list object with items that are JSON already."""
    return json.dumps(head).encode()[:-1] + b', "data": [' + b", ".join(contents) + b"]}"
