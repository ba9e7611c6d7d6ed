"""The event loop's end of the socket to a process that frames are exchanged with (frames.py)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

from nic_frontend.processes.frames import FrameError, Frames

ENDED = "it needs too much memory, or ended its process"


def ignore(_: Any) -> None:
    pass


class Channel(asyncio.Protocol):
    """`on_data` is given each frame, of at most `most` bytes; `on_end` is told once why no more will come."""

    def __init__(self, most: int) -> None:
        self._frames = Frames(most)
        self._transport: asyncio.Transport | None = None
        self.on_data: Callable[[bytes], None] = ignore
        self.on_end: Callable[[str], None] = ignore

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                self.on_data(frame)
        except FrameError as error:
            on_end = self.on_end
            self.abandon()
            on_end(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        self.on_end(ENDED)

    def write(self, payload: bytes) -> None:
        if self._transport is not None:
            self._transport.write(payload)

    def abandon(self) -> None:
        """Closes the connection, of whose end nobody is told."""
        self.on_data = self.on_end = ignore
        if self._transport is not None:
            self._transport.abort()


def has_ended(connection: socket.socket) -> bool:
    """Whether the other end was closed; `connection` does not block."""
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:  # our end was closed, too
        return True
