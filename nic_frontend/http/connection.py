"""A client's connection: uvicorn's, which reads with httptools, with bounds and without upgrades."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import MutableMapping
from functools import partial
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from nic_frontend.errors import ApiError, bad_request, unavailable
from nic_frontend.http.asgi import Receive, Scope, Send
from nic_frontend.http.connections import Connections, Droppable
from nic_frontend.http.peer import Peer, peer_of

MAX_HEAD = 64 << 10  # bytes
MAX_FRAMING = 16 << 10  # bytes of a chunked body from one byte of content to the next: sizes and extensions
MAX_UNREAD = 16 << 20  # bytes of a body whose request has been answered already, so that clients read why
WITHOUT_CHUNKS = ("0.9", "1.0")  # versions of HTTP
HEAD_TIMEOUT_S = 30.0
LOOK_S = 0.5  # for the end of a connection that is not read
UNIX = "unix"  # in place of a client's address


async def _without_chunks(
    cycle: RequestResponseCycle, app: Any, scope: Scope, receive: Receive, send: Send
) -> None:
    """Runs the app for a client that knows no chunks: an answer of unknown length ends with the connection.
    uvicorn would send it in chunks, whatever the version of HTTP.
    """
    is_sized = True

    async def send_plain(message: MutableMapping[str, Any]) -> None:
        nonlocal is_sized
        if message["type"] == "http.response.start":
            is_sized = any(name == b"content-length" for name, _ in message["headers"])
            if not is_sized:
                cycle.chunked_encoding = False
        elif not is_sized:
            cycle.expected_content_length = len(message["body"])  # uvicorn's sum is right after each piece
        await send(message)

    await app(scope, receive, send_plain)


class Connection(HttpToolsProtocol):
    """A request's head, the first and every other, must be whole within HEAD_TIMEOUT_S and MAX_HEAD (F9).

    Headers behind a chunked body (trailers) are refused: nothing reads them, and they would have no end.
    What a client takes nothing of for `stall_s` is not kept for it.
    An offer to upgrade is not taken (RFC 9110, 7.8): curl and the JDK offer HTTP/2 with ordinary requests.
    """

    numbers = itertools.count(1)  # of clients without an address, which are told apart by them (S2)
    crowd: Connections  # that it is one of
    stall_s: float

    @classmethod
    def among(cls, crowd: Connections, stall_s: float) -> type[Connection]:
        """The class of the connections of one server."""
        return type(cls.__name__, (cls,), {"crowd": crowd, "stall_s": stall_s})

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_left: int | None = MAX_HEAD  # bytes; None when what comes is a body
        self._framing = 0  # bytes of the body since its last byte of content
        self._unread = 0  # bytes of a body that nobody will read
        self._head_timer: asyncio.TimerHandle | None = None
        self._look_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._served: RequestResponseCycle | None = None  # self.cycle is the last that came
        self._refused: ApiError | None = None  # what is told behind the answers that are still owed
        self._peer: Peer
        self.counted_as: Droppable | None = None  # until now: its handshake

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._peer = peer_of(transport)
        if self.client is None:
            self.client = (UNIX, next(self.numbers))
        if self.counted_as is not None:
            self.crowd.closed(self.counted_as)
        if self.crowd.opened(self):
            self._expect_head()
        else:
            self._refuse(unavailable("the server has as many connections as it may; retry shortly"))

    def drop(self) -> None:
        self.transport.abort()

    def answer_as_the_last(self) -> None:
        """An answer whose head has not been sent yet will say that the connection ends with it."""
        if self.cycle is not None and not self.cycle.response_started:
            self.cycle.keep_alive = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.crowd.closed(self)
        for timer in (self._head_timer, self._look_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        if self._served is not None and not self._served.response_complete:
            self._served.disconnected = True
            self._served.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self._refused is not None:
            return
        self._unset_keepalive_if_required()
        if self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_head()  # the rest of a body that was refused is no reason to wait longer
        if self._head_left is None:
            if self.cycle.response_complete:
                self._unread += len(data)
                if self._unread > MAX_UNREAD:
                    self.transport.abort()
                    return
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
        if self.transport.is_closing() or self._refused is not None:
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
        """Says why what came last is refused, behind the answers to what came before it, and closes the
        connection. Amid an answer to the refused request itself there is nothing to say.
        """
        served, in_body = self._served, self._head_left is None
        if served is not None and not served.response_complete:
            if not in_body or served is not self.cycle:
                if in_body:
                    self.pipeline.popleft()  # the request whose body is refused
                self._refused = error
                self._expect_no_head()
                self.flow.pause_reading()
                if self._look_timer is None:
                    self._look()
                return
            served.disconnected = True  # its handler waits for the body, and must not answer as well
            served.message_event.set()
            if served.response_started:
                self.transport.close()
                return
        if not in_body or (served is not None and not served.response_started):
            body = json.dumps(error.body).encode()
            head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
            self.transport.write(STATUS_LINE[error.status] + head % len(body) + body)
        self.transport.close()
        self._watch_writing()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_head()
        if self._served is None or self._served.response_complete:
            self.crowd.await_(self)

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
        super().on_headers_complete()  # which may find that the URL is none: so far this is a head
        ends = self.crowd.ending or self._announced() > MAX_UNREAD
        self.cycle.keep_alive = self.cycle.keep_alive and not ends
        self._head_left = None
        self._framing = self._unread = 0
        self._expect_no_head()
        if self._served is self.cycle:
            self.crowd.await_(self)
        if self.pipeline and self._look_timer is None:
            self._look()

    def _announced(self) -> int:
        """How long the body is, where the head says it; the parser takes nothing but digits."""
        return next((int(value) for name, value in self.headers if name == b"content-length"), 0)

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            self._head_left = MAX_HEAD
            super().on_message_complete()
            if self._served is self.cycle and not self.cycle.response_complete:
                self.crowd.arrived(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()  # it serves the next one if that waits
        if self._refused is not None and not self.pipeline and not self.transport.is_closing():
            refused, self._refused, self._head_left = self._refused, None, 0
            self._refuse(refused)
            return
        if self._served is None or self._served.response_complete or self._served.more_body:
            self.crowd.await_(self)
        self._watch_writing()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writing()

    def _watch_writing(self) -> None:
        """While something is to be written the client has to take some of it, or it goes (F9). The kernel
        drops those that are silent (TCP_USER_TIMEOUT), but not one that says that it has no room.
        """
        if self._stall_timer is None and self.transport.get_write_buffer_size():
            self._stall_timer = self.loop.call_later(self.stall_s, self._look_at_writing, self._peer.taken())

    def _look_at_writing(self, before: object) -> None:
        self._stall_timer = None
        if self.transport.get_write_buffer_size() and self._peer.taken() == before:
            self.transport.abort()
        else:
            self._watch_writing()

    def _expect_head(self) -> None:
        self._expect_no_head()
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.close)

    def _expect_no_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._served = cycle
        if cycle.scope["http_version"] in WITHOUT_CHUNKS:
            cycle.keep_alive = False
            app = partial(_without_chunks, cycle, app)
        super()._start_asgi_task(cycle, app)

    def _look(self) -> None:
        """While requests wait for the one before them uvicorn does not read, so that no read tells when the
        client leaves (F8).
        """
        self._look_timer = None
        if not self.pipeline and self._refused is None:
            return
        if self._peer.is_there():
            self._look_timer = self.loop.call_later(LOOK_S, self._look)
        else:
            self.transport.abort()
