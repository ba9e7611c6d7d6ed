"""A POST to the frontend's application within this process: the same endpoints as over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, NamedTuple

from nic_frontend.app import App

HEADERS = [(b"host", b"localhost"), (b"content-type", b"application/json")]


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def media_type(self) -> str:
        """Of the body: "application/json" for one."""
        return self.headers.get("content-type", "").partition(";")[0].strip()


async def post(app: App, path: str, body: bytes) -> Response:
    """Cancelled, it ends the request."""
    scope: dict[str, Any] = {
        "type": "http", "method": "POST", "path": path, "query_string": b"", "headers": list(HEADERS),
        "client": ("batch", 0),
    }  # fmt: skip
    parts: list[bytes] = [body]  # of the request, and then of the response
    status, headers = 0, {}

    async def receive() -> MutableMapping[str, Any]:
        if parts and status == 0:
            return {"type": "http.request", "body": parts.pop(), "more_body": False}
        await asyncio.Event().wait()  # nobody disconnects
        raise AssertionError

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
        else:
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    return Response(status, headers, b"".join(parts))
