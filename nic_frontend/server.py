"""A frontend process: the socket, uvicorn on uvloop, and an orderly end.

After SIGTERM and SIGINT no more connections are let in (http/listener.py), and those that there are get an
answer to one more request each. SIGTERM means that others serve on: such a request is waited for as long as
clients may keep a connection idle. SIGINT means that the whole server ends: it has to come soon. Open
requests may finish within `drain_timeout_s`, then get an error event; the lease is given back last.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn

from nic_frontend import errors
from nic_frontend.app import App
from nic_frontend.http.connection import Connection
from nic_frontend.http.connections import Connections, Droppable
from nic_frontend.http.handshake import TlsAcceptor
from nic_frontend.http.hosts import is_loopback
from nic_frontend.http.listener import BACKLOG, let_nobody_in, listen, listening_at
from nic_frontend.http.open_files import allow_most
from nic_frontend.http.tls import Certificate
from nic_frontend.options import FrontendOptions
from nic_frontend.processes.full_collections import FullCollections
from nic_frontend.service import Service
from nic_frontend.transport.base import TransportError

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 75
SPARE_FILES = 100  # beside the connections: the ring, the reader, threads that read files
GRACE_S = 2  # for handlers to send their last event
GRAMMARS_S = 2.0  # for grammars that are being compiled at the end; their requests have not begun
LINGER_S = 1.0  # after the signal, for a connection's next request, where the whole server ends
HANDSHAKE_S = 0.25  # for handshakes under way with clients on other machines
LOOK_S = 0.02


class Server(uvicorn.Server):
    """uvicorn, with an end for the requests that outlive the drain timeout and a word when it serves."""

    def __init__(
        self,
        service: Service,
        ready: Callable[[], None] | None,
        lives: Callable[[], None] = lambda: None,
        on_hangup: Callable[[], None] = lambda: None,
    ) -> None:
        options = service.options
        self._connections = Connections(options.max_connections)
        files = options.tls_key, options.tls_client_ca
        self._certificate = Certificate(options.tls_cert, *files) if options.tls_cert else None
        self._acceptors: list[TlsAcceptor] = []
        self._collections: FullCollections | None = None  # while it serves
        self._connection_class = Connection.among(self._connections, options.send_timeout_s)
        config = uvicorn.Config(
            App(service),
            loop="uvloop",
            http=self._connection_class,
            ws="none",
            lifespan="on",
            log_config=None,
            log_level=logging.WARNING,  # its own words about starting and ending add nothing to ours
            access_log=False,
            server_header=False,
            proxy_headers=bool(options.trusted_proxies),
            forwarded_allow_ips=list(options.trusted_proxies),
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=int(options.drain_timeout_s) + GRACE_S,
        )
        super().__init__(config)
        self._service = service
        self._ready = ready
        self._lives = lives
        self._on_hangup = on_hangup
        self._asked_by: set[int] = set()  # signals, to end
        service.on_given_up = self._end

    def _end(self) -> None:
        self.should_exit = True

    def read_again(self) -> None:
        """After SIGHUP: certificate and keys may have been renewed, and the log rotated."""
        self._on_hangup()
        self._service.keys.look()
        if self._certificate is not None:
            self._certificate.read_again()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A second SIGINT ends at once. A service manager's SIGTERM may come before a supervisor's SIGINT."""
        self.force_exit = self.force_exit or (sig == signal.SIGINT and sig in self._asked_by)
        self._asked_by.add(sig)
        self.should_exit = True

    @property
    def _linger_s(self) -> float:
        """How long a connection's next request is waited for after the signal."""
        if self._asked_by != {signal.SIGTERM}:
            return LINGER_S
        # The other half of the drain timeout is left for the request that comes last.
        return max(LINGER_S, min(KEEP_ALIVE_S, self._service.options.drain_timeout_s / 2))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, without raising the signal again at the end: the lease is still to be given back."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)
        }
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.read_again)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._certificate is None:
            await super().startup(sockets)
        else:
            await super().startup([])
            self._acceptors = [
                TlsAcceptor(listener, self._secured, self._certificate, self._connections)
                for listener in sockets or []
            ]
        self._collections = FullCollections(time.monotonic())
        if self._ready is not None and self.started:
            self._ready()

    def _secured(self, handshake: Droppable) -> Connection:
        """The protocol of a connection whose handshake is over, as uvicorn makes it."""
        connection: Connection = self._connection_class(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        connection.counted_as = handshake
        return connection

    async def on_tick(self, counter: int) -> bool:
        self._lives()
        if self._collections is not None:
            self._collections.look(lambda: self._service.tracker.n_open, time.monotonic())
        return await super().on_tick(counter)

    async def _linger(self, listeners: list[socket.socket]) -> None:
        """Serves what is in the queue and what clients send that could not know of the end."""
        for listener in listeners:
            let_nobody_in(listener)
        self._connections.ending = True
        for connection in self.server_state.connections:
            if isinstance(connection, Connection):
                connection.answer_as_the_last()
        loop = asyncio.get_running_loop()
        began, host = loop.time(), self._service.options.host
        first = began + (LOOK_S if is_loopback(host) else HANDSHAKE_S)
        await asyncio.sleep(LOOK_S)
        while loop.time() < began + self._linger_s and not self.force_exit:
            if loop.time() > first and not self._connections.awaited:
                return
            await asyncio.sleep(LOOK_S)
        if n := self._connections.awaited:
            log.info(
                "closing %d connections on which no request came for %.1f s: one that is on its way is lost",
                n, loop.time() - began,
            )  # fmt: skip

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop, service = asyncio.get_running_loop(), self._service
        error = errors.ending()
        timers = [loop.call_later(service.options.drain_timeout_s, service.tracker.fail_all, error)]
        try:
            await self._linger(sockets or [])
            timers.append(loop.call_later(GRAMMARS_S, service.grammars.fail_all, error))
            for acceptor in self._acceptors:
                acceptor.close()
            await super().shutdown(sockets)
        finally:
            for timer in timers:
                timer.cancel()
            if self._collections is not None:
                self._collections.leave()


def within(options: FrontendOptions, files: int) -> FrontendOptions:
    """The options of a process that may have so many files open for connections."""
    return dataclasses.replace(options, max_connections=max(1, min(options.max_connections, files)))


@contextlib.contextmanager
def listening(options: FrontendOptions) -> Iterator[socket.socket]:
    """The socket that these options name. Raises OSError where the address is taken."""
    if options.uds is not None:
        with listening_at(options.uds, options.send_buffer_bytes) as listener:
            yield listener
        return
    with listen(options) as listener:
        yield listener


def address_of(listener: socket.socket, *, tls: bool) -> str:
    """Where clients find it, as a URL has it."""
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    return f"http{'s' if tls else ''}://{host}:{port}"


def serve(
    options: FrontendOptions,
    listener: socket.socket,
    ready: Callable[[], None] | None = None,
    lives: Callable[[], None] = lambda: None,
    on_hangup: Callable[[], None] = lambda: None,
) -> None:
    """Serves those who connect to `listener`, which stays its owner's, until SIGTERM or SIGINT. `ready` is
    called once when requests are accepted, `lives` some times a second while the event loop turns, and
    `on_hangup` when SIGHUP comes.

    Raises TransportError when the ring cannot be used, or not any more, and FileNotFoundError or ValueError
    when the model's files cannot be.
    """
    options = within(options, allow_most() - SPARE_FILES)
    service = Service(options)
    try:
        if (most := options.max_connections) < (n_slots := service.lease.n_slots):
            log.warning(
                "may have %d connections, too few for %d slots: raise --max-connections and the limit of "
                "files (ulimit -Hn) to %d", most, n_slots, n_slots + SPARE_FILES,
            )  # fmt: skip

        def announce() -> None:
            gc.collect()
            gc.freeze()  # what lives as long as this process need not be looked at on the token path
            where = address_of(listener, tls=options.tls_cert is not None)
            log.info("serving %s on %s", service.model, where)
            if ready is not None:
                ready()

        Server(service, announce, lives, on_hangup).run(sockets=[listener])
        if service.given_up is not None:
            raise TransportError(service.given_up)
    finally:
        service.close()
