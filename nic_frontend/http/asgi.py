"""The little that is needed of ASGI: a body in, a response out."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from nic_frontend.errors import ApiError, ClientGone, bad_request
from nic_frontend.http.bodies import Body
from nic_frontend.http.long_json import PIECE, pieces

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

JSON = (b"content-type", b"application/json")
STREAM = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


def header(scope: Scope, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


def number_in_query(scope: Scope, name: str, default: float) -> float:
    """What the query (?name=2.5) says. Raises ApiError 400 for what is no number."""
    given = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    text = given.get(name, [str(default)])[-1]
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise bad_request(f"'{name}' is {text[:40]!r}, it must be a number", name)
    return value


async def disconnected(receive: Receive) -> None:
    """Returns when the client has left; its body has been received. Writes go on succeeding then (F8)."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_json_body(scope: Scope, receive: Receive, body: Body, limit: int, timeout_s: float) -> bytes:
    """The body, whose memory is `body`'s.

    Raises ApiError 415 for another media type or an encoded body, 413 above `limit` bytes, 408 when it does
    not arrive in time, 503 when all bodies together are too large.
    """
    media = (header(scope, b"content-type") or "").partition(";")[0].strip().lower()
    if media != "application/json":  # nor none: pages of any origin can send that from a browser
        raise ApiError(415, f"the content type must be application/json, it is {media or 'missing'}")
    coding = (header(scope, b"content-encoding") or "identity").strip().lower()
    if coding != "identity":
        raise ApiError(415, f"the content-encoding {coding} is not supported; send the body without one")
    length = header(scope, b"content-length")
    if length is not None and length.isdigit() and int(length) > limit:
        raise too_large(limit)
    parts, size = [], 0
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > limit:
                    raise too_large(limit)
                body.grow(len(parts[-1]))
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError as error:
        headers = {"connection": "close"}
        raise ApiError(408, f"the body did not arrive within {timeout_s:g} s", headers=headers) from error


def too_large(limit: int) -> ApiError:
    return ApiError(413, f"the body is larger than {limit} bytes", code="request_too_large")


async def respond(send: Send, status: int, body: bytes, headers: list[Header] | None = None) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*(headers or [JSON]), length]})
    for start in range(0, max(1, len(body)), PIECE):  # each waits until the client has taken those before it
        end = start + PIECE
        await send({"type": "http.response.body", "body": body[start:end], "more_body": end < len(body)})


def encoded(headers: dict[str, str]) -> list[Header]:
    return [(name.encode(), text.encode("latin-1", "replace")) for name, text in headers.items()]


async def respond_json(send: Send, status: int, value: object, headers: dict[str, str] | None = None) -> None:
    """The value may have Batches and LongText in it: others have their turns between what is made of these,
    and what is longer than a PIECE goes out as it is made.
    """
    begun, body = [JSON, *encoded(headers or {})], b""
    is_sent = False
    for n, piece in enumerate(pieces(value, partial(json.dumps, ensure_ascii=False))):
        if n:
            await asyncio.sleep(0)
        # A lone surrogate that came with the request becomes a JSON escape again.
        body += piece.encode(errors="backslashreplace")
        if len(body) < PIECE:
            continue
        if not is_sent:
            await send({"type": "http.response.start", "status": status, "headers": begun})
            is_sent = True
        await send({"type": "http.response.body", "body": body, "more_body": True})
        body = b""
    if is_sent:
        await send({"type": "http.response.body", "body": body})
    else:
        await respond(send, status, body, begun)
