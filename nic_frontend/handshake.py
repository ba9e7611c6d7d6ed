"""A TLS connection from when it is accepted until its handshake is over.

It counts among the connections from the first moment, so that clients which never finish their handshakes
cannot hold more of them than `--max-connections` permits (F9). What the client has to do for its handshake
has to come within HANDSHAKE_S.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from nic_frontend.connection import Connection
from nic_frontend.tls import Certificate

HANDSHAKE_S = 5.0


class Handshake(asyncio.Protocol):
    """The protocol of an accepted socket. After the handshake, a `Connection` takes its place."""

    connection: type[Connection]  # what comes after the handshake
    certificate: Certificate

    @classmethod
    def before(cls, connection: type[Connection], certificate: Certificate) -> type[Handshake]:
        """The class of the handshakes of one server. uvicorn constructs it in place of `connection`."""
        return type(cls.__name__, (cls,), {"connection": connection, "certificate": certificate})

    def __init__(self, **of_connection: Any) -> None:
        self._of_connection = of_connection
        self._crowd = self.connection.crowd
        self._early: list[bytes] = []  # content that came before the connection took over
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._crowd.opened(self):
            self._transport.abort()  # without a handshake, nothing can be said
            return
        self._transport.pause_reading()  # `start_tls` resumes it; until then nothing may be read as content
        self._task = asyncio.create_task(self._shake_hands(self._transport))

    def data_received(self, data: bytes) -> None:
        self._early.append(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._crowd.closed(self)

    def drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _shake_hands(self, accepted: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        try:
            transport = await loop.start_tls(
                accepted,
                self,
                self.certificate.context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_S,
            )
        except OSError:  # which an SSLError and a TimeoutError are: the client speaks no TLS, or left
            transport = None
        self._crowd.closed(self)
        if transport is None or transport.is_closing():
            accepted.abort()
            return
        connection = self.connection(**self._of_connection)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        for data in self._early:
            connection.data_received(data)
