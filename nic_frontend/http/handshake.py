"""Accepts the connections of a server that speaks TLS.

An event loop's own server tells of a TLS connection only after its handshake, so that clients which never
finish theirs would hold connections that nobody counts. Here a connection counts from the moment when it is
accepted (F9), makes room for others like any that keeps the server waiting, and has HANDSHAKE_S for its
handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable

from nic_frontend.http.connections import Connections, Droppable
from nic_frontend.http.tls import Certificate

log = logging.getLogger(__name__)

HANDSHAKE_S = 5.0
PAUSE_S = 0.1  # where the system has no room for another connection


class TlsAcceptor:
    """Accepts from `listener` and gives each connection, after its handshake, to what `protocol` makes, which
    then takes the place among the connections of the Droppable that it is given.

    The listener stays its owner's. `close` ends the handshakes under way.
    """

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[Droppable], asyncio.Protocol],
        certificate: Certificate,
        crowd: Connections,
    ) -> None:
        self._listener, self._protocol, self._certificate, self._crowd = (
            listener,
            protocol,
            certificate,
            crowd,
        )
        self._handshakes: set[_Handshake] = set()
        listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept())

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._listener)
            except ConnectionError:  # it left while it waited in the queue
                continue
            except OSError as error:
                log.warning("cannot accept a connection: %s", error)
                await asyncio.sleep(PAUSE_S)
                continue
            handshake = _Handshake(accepted)
            if not self._crowd.opened(handshake):
                accepted.close()  # without a handshake, nothing can be said
                continue
            self._handshakes.add(handshake)
            handshake.task = asyncio.create_task(self._shake_hands(handshake))

    async def _shake_hands(self, handshake: _Handshake) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._protocol(handshake),
                handshake.accepted,
                ssl=self._certificate.context,
                ssl_handshake_timeout=HANDSHAKE_S,
            )
        except OSError as error:  # or an SSLError: the client speaks no TLS, is too slow, or has left
            # The client may see no more than that the connection ends. Strangers could fill a log of these.
            log.debug("a connection ends before it is one of TLS: %s", str(error) or type(error).__name__)
        finally:
            self._crowd.closed(handshake)
            self._handshakes.discard(handshake)

    def close(self) -> None:
        self._accepting.cancel()
        for handshake in [*self._handshakes]:
            handshake.drop()


class _Handshake:
    """An accepted connection until its handshake is over."""

    task: asyncio.Task[None]

    def __init__(self, accepted: socket.socket) -> None:
        self.accepted = accepted

    def drop(self) -> None:
        with contextlib.suppress(OSError):  # the client may have left
            self.accepted.shutdown(socket.SHUT_RDWR)
        self.task.cancel()
