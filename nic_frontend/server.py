"""A frontend process: the socket, uvicorn on uvloop, and an orderly end.

SIGTERM and SIGINT stop accepting. Open requests may finish within `drain_timeout_s`, then get an error event;
the lease is given back last.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn

from nic_frontend import errors
from nic_frontend.app import App
from nic_frontend.connection import Connection
from nic_frontend.open_files import allow_most
from nic_frontend.options import FrontendOptions
from nic_frontend.service import Service
from nic_frontend.transport.base import TransportError

log = logging.getLogger(__name__)

BACKLOG = 2048
KEEP_ALIVE_S = 75
SPARE_FILES = 100  # beside a connection for each slot: idle connections, the ring, the reader
GRACE_S = 2  # for handlers to send their last event


def listen(options: FrontendOptions) -> socket.socket:
    """A bound socket.

    What is set here is inherited by the accepted ones. Raises OSError when the address is taken.
    """
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(options.send_timeout_s * 1000))
        listener.bind((options.host, options.port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


class Server(uvicorn.Server):
    """uvicorn, with an end for the requests that outlive the drain timeout and a word when it serves."""

    def __init__(
        self, service: Service, ready: Callable[[], None] | None, lives: Callable[[], None] = lambda: None
    ) -> None:
        config = uvicorn.Config(
            App(service),
            ssl_certfile=service.options.tls_cert,
            ssl_keyfile=service.options.tls_key,
            loop="uvloop",
            http=Connection,
            ws="none",
            lifespan="on",
            log_config=None,
            log_level=logging.WARNING,  # its own words about starting and ending add nothing to ours
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=int(service.options.drain_timeout_s) + GRACE_S,
        )
        super().__init__(config)
        self._service = service
        self._ready = ready
        self._lives = lives
        service.on_given_up = self._end

    def _end(self) -> None:
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, without raising the signal again at the end: the lease is still to be given back."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # what lives until the end need not be looked at by collections on the token path
        if self._ready is not None and self.started:
            self._ready()

    async def on_tick(self, counter: int) -> bool:
        self._lives()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        error = errors.unavailable("the frontend is shutting down")
        fail_all, timeout_s = self._service.tracker.fail_all, self._service.options.drain_timeout_s
        timer = asyncio.get_running_loop().call_later(timeout_s, fail_all, error)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()


def serve(
    options: FrontendOptions,
    ready: Callable[[str, int], None] | None = None,
    lives: Callable[[], None] = lambda: None,
) -> None:
    """Serves until SIGTERM or SIGINT. `ready` is called once with the address when requests are accepted, and
    `lives` some times a second while the event loop turns.

    Raises TransportError when the ring cannot be used, or not any more, FileNotFoundError or ValueError when
    the model's files cannot be, and OSError when the address is taken.
    """
    most_files = allow_most()
    listener = listen(options)
    try:
        service = Service(options)
        try:
            if most_files < (wanted := service.lease.n_slots + SPARE_FILES):
                log.warning(
                    "may open %d files, too few for %d slots: raise the limit (ulimit -Hn) to %d",
                    most_files, service.lease.n_slots, wanted,
                )  # fmt: skip
            host, port = listener.getsockname()[:2]

            def announce() -> None:
                scheme = "https" if options.tls_cert else "http"
                log.info("serving %s on %s://%s:%d", service.model, scheme, host, port)
                if ready is not None:
                    ready(host, port)

            Server(service, announce, lives).run(sockets=[listener])
            if service.given_up is not None:
                raise TransportError(service.given_up)
        finally:
            service.close()
    finally:
        listener.close()
