"""What the kernel knows of the other end of a connection, over TCP and over a Unix socket."""

from __future__ import annotations

import array
import asyncio
import fcntl
import select
import socket
import termios
from typing import Protocol

TCP_ESTABLISHED = 1  # netinet/tcp.h, the first byte of struct tcp_info
BYTES_ACKED = slice(120, 128)  # ... and tcpi_bytes_acked (linux/tcp.h)


class Peer(Protocol):
    def taken(self) -> object:
        """A value that differs from an earlier one where the client has taken something since."""
        ...

    def is_there(self) -> bool:
        """Whether the client still has its end open for what it sends."""
        ...


class TcpPeer:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def taken(self) -> bytes:
        return self._info(BYTES_ACKED.stop)[BYTES_ACKED]

    def is_there(self) -> bool:
        return self._info(1)[0] == TCP_ESTABLISHED

    def _info(self, n: int) -> bytes:
        return self._connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, n)


class UnixPeer:
    def __init__(self, transport: asyncio.Transport, connection: socket.socket) -> None:
        self._transport, self._descriptor = transport, connection.fileno()
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLRDHUP)

    def taken(self) -> tuple[int, int]:
        """How many bytes the kernel and the transport hold for the client. The kernel counts no total. Where
        the client takes nothing, both stay as they are once the transport holds so much that nobody may
        write; where it takes something, the transport passes that much on."""
        held = array.array("i", [0])
        fcntl.ioctl(self._descriptor, termios.TIOCOUTQ, held)
        return held[0], self._transport.get_write_buffer_size()

    def is_there(self) -> bool:
        return not self._poll.poll(0)


def peer_of(transport: asyncio.Transport) -> Peer:
    connection: socket.socket = transport.get_extra_info("socket")
    return UnixPeer(transport, connection) if connection.family == socket.AF_UNIX else TcpPeer(connection)
