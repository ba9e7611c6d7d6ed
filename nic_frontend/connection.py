"""A client's connection: uvicorn's, which reads with httptools, with bounds and without upgrades."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from nic_frontend.errors import ApiError, bad_request

MAX_HEAD = 64 << 10  # bytes
MAX_FRAMING = 16 << 10  # bytes of a chunked body from one byte of content to the next: sizes and extensions
HEAD_TIMEOUT_S = 30.0
LOOK_S = 0.5  # for the end of a connection that is not read
TCP_ESTABLISHED = 1  # netinet/tcp.h, the first byte of struct tcp_info


class Connection(HttpToolsProtocol):
    """A request's head, the first and every other, must be whole within HEAD_TIMEOUT_S and MAX_HEAD (F9).

    Headers behind a chunked body (trailers) are refused: nothing reads them, and they would have no end.
    An offer to upgrade is not taken (RFC 9110, 7.8): curl and the JDK offer HTTP/2 with ordinary requests.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_left: int | None = MAX_HEAD  # bytes; None when what comes is a body
        self._framing = 0  # bytes of the body since its last byte of content
        self._head_timer: asyncio.TimerHandle | None = None
        self._look_timer: asyncio.TimerHandle | None = None
        self._served: RequestResponseCycle | None = None  # self.cycle is the last that came

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._look_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        if self._served is not None and not self._served.response_complete:
            self._served.disconnected = True
            self._served.message_event.set()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_head()  # the rest of a body that was refused is no reason to wait longer
        if self._head_left is None:
            self._framing += len(data)  # before `on_body`, which sets it back
            self._feed(data)
            in_body = self._head_left is None and not self.transport.is_closing()
            if in_body and self._framing > MAX_FRAMING:
                message = f"the body has no content within {MAX_FRAMING} bytes of chunk sizes and extensions"
                self._refuse(bad_request(message))
            return
        room = self._head_left
        self._head_left -= min(room, len(data))
        self._feed(data[:room])
        if self.transport.is_closing():
            return
        if self._head_left == 0:
            self._refuse(ApiError(431, f"the request's head is larger than {MAX_HEAD} bytes"))
        elif len(data) > room:
            self.data_received(data[room:])

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            refused = error.__context__  # what a callback raised
            self._refuse(
                refused if isinstance(refused, ApiError) else bad_request(f"this is not HTTP/1.1: {error}")
            )
        except httptools.HttpParserUpgrade as offer:
            self._serve_without_upgrade(data[offer.args[0] :])

    def _serve_without_upgrade(self, rest: bytes) -> None:
        """The parser stops behind a head that offers an upgrade, and would read no body: another one gets the
        head without the offer, and the `rest`.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(bad_request("this server is not a proxy"))
            return
        kept = [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        first = method + b" " + self.url + b" HTTP/" + self.parser.get_http_version().encode()
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
        self._feed(b"\r\n".join([first, *kept, b"", rest]))

    def _refuse(self, error: ApiError) -> None:
        """Closes the connection; says why unless that came amid an answer or behind it."""
        served = self._served
        if served is None or self._head_left is not None:
            told = served is None or served.response_complete
        else:
            told = served is self.cycle and not served.response_started
            served.disconnected = told  # its handler waits for the body, and must not answer as well
            served.message_event.set()
        if told:
            body = json.dumps(error.body).encode()
            head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(
                body
            )
            self.transport.write(STATUS_LINE[error.status] + head + body)
        self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_left is None:
            raise bad_request("headers behind the body (trailers) are not supported")
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._framing = 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # it comes again, without the offer
        self._head_left = None
        self._framing = 0
        self._expect_no_head()
        super().on_headers_complete()
        if self.pipeline and self._look_timer is None:
            self._look()

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            self._head_left = MAX_HEAD
            super().on_message_complete()

    def _expect_head(self) -> None:
        self._expect_no_head()
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.close)

    def _expect_no_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._served = cycle
        super()._start_asgi_task(cycle, app)

    def _look(self) -> None:
        """While requests wait for the one before them uvicorn does not read, so that no read tells when the
        client leaves (F8).
        """
        self._look_timer = None
        if not self.pipeline:
            return
        info = self.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        if info[0] == TCP_ESTABLISHED:
            self._look_timer = self.loop.call_later(LOOK_S, self._look)
        else:
            self.transport.abort()
