"""Answers in the frontends' place while none of them serves: 503, and when to try again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket

from nic_frontend.errors import ApiError, unavailable
from nic_frontend.http.listener import let_nobody_in

MAX_HEAD = 64 << 10  # bytes
PATIENCE_S = 5.0  # for a request's head, and for its client to take the answer
QUEUE_S = 0.02  # for what is in the queue when a frontend serves again


class StandIn:
    """Shares the frontends' address between `begin` and `end`. Where it cannot, nobody answers.

    `shared`: the Unix socket that frontends accept from, in place of a port.
    """

    def __init__(self, host: str, port: int, shared: socket.socket | None = None) -> None:
        self._address, self._shared = (host, port), shared
        self._listener: socket.socket | None = None
        self._server: asyncio.Server | None = None

    async def begin(self) -> None:
        if self._server is not None:
            return
        with contextlib.suppress(OSError):
            self._listener = listener = self._listen()
            self._server = await asyncio.start_server(self._answer, sock=listener, limit=MAX_HEAD)

    def _listen(self) -> socket.socket:
        if self._shared is not None:
            return self._shared.dup()
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        return socket.create_server(self._address, family=family, reuse_port=True)

    async def end(self) -> None:
        """Loses nobody who is in the queue."""
        if self._server is None or self._listener is None:
            return
        let_nobody_in(self._listener)
        await asyncio.sleep(QUEUE_S)
        self._server.close()
        self._server = self._listener = None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, EOFError, asyncio.LimitOverrunError):
            async with asyncio.timeout(PATIENCE_S):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer(unavailable("the backend is being started again; retry shortly")))
                writer.write_eof()
                while await reader.read(MAX_HEAD):
                    pass  # a connection that is closed on what it did not read is reset
        writer.close()


def answer(error: ApiError) -> bytes:
    body = json.dumps(error.body).encode()
    fields = {"content-type": "application/json", "connection": "close", "content-length": str(len(body))}
    lines = [f"HTTP/1.1 {error.status} Service Unavailable"]
    lines += [f"{name}: {value}" for name, value in (fields | error.headers).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
