"""What every way to the ring offers: one-sided reads and writes of the region by byte offset (paper section
4.4, "RDMA datapath").

Nothing above a transport touches a mapping or a queue pair. The hot loops run in native code over `link`, a
handle of the same operations (native/link.h), so an RDMA transport brings a link of its own and nothing else
changes.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from nic_frontend.library import library
from ringbuffer import abi


@dataclass(frozen=True)
class Capabilities:
    """What a transport can promise about its path to the ring."""

    name: str
    writes_ordered: bool  # payload and word need no fence or read-back between them
    lease_timeout_ns: int  # how long the scheduler is asked to keep a lease whose frontend stands still
    least_copy: int = 0  # bytes that a prompt should have room for: it is padded to that many (U2)


class TransportError(RuntimeError):
    """The ring cannot be reached; the message says why and what to do."""


class Transport(Protocol):
    """One frontend's path to one ring. All offsets and sizes are bytes and multiples of 8."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def link(self) -> int:
        """Address of the native link (struct blink_link), valid until `close`."""
        ...

    def read(self, offset: int, n_bytes: int) -> bytes:
        """Each aligned 8-byte word arrives whole; the next read sees whatever was published before these
        words.

        Raises TransportError while the link is down.
        """
        ...

    def write(self, offset: int, payload: bytes, room: int = 0) -> None:
        """Writes payload, visible at the latest with the next `publish`.

        `room`: bytes from `offset` on that may be overwritten, where they are more than the payload's.
        """
        ...

    def publish(self, offset: int, word: int) -> None:
        """Stores one 8-byte word after everything written before it (R2)."""
        ...

    def claim_lease(self, n_leases: int) -> int | None:
        """A lease index nobody else holds, or None.

        Held until `close`, and given up by the kernel when the process dies.
        """
        ...

    def reconnect(self) -> None:
        """Brings the link back after it has reported itself down. Takes a bounded time, in any thread.

        Raises TransportError when that fails.
        """
        ...

    def is_outdated(self) -> bool:
        """Whether another backend has made the ring anew, which only a new transport reaches."""
        ...

    def backend_lives(self) -> bool:
        """Whether the backend's process is known to live; False where it cannot be known from here."""
        ...

    def close(self) -> None: ...


class NativeLink:
    """The data path of a Transport: what every one does alike, over its native link."""

    link: int

    def __init__(self) -> None:
        self._native = library()

    def read(self, offset: int, n_bytes: int) -> bytes:
        """Raises TransportError when the link is down."""
        buffer = ctypes.create_string_buffer(n_bytes)
        if self._native.blink_link_read(self.link, offset, buffer, n_bytes):
            raise TransportError(self._why_down())
        return buffer.raw

    def write(self, offset: int, payload: bytes, room: int = 0) -> None:
        self._native.blink_link_write(self.link, offset, payload, len(payload), max(room, len(payload)))

    def publish(self, offset: int, word: int) -> None:
        self._native.blink_link_publish(self.link, offset, word)

    def _why_down(self) -> str:
        return "the link to the ring is down"


def read_header(transport: Transport) -> np.void:
    """The region's header (abi.Header)."""
    return np.void(np.frombuffer(transport.read(0, abi.Header.itemsize), dtype=abi.Header)[0])


def read_word(transport: Transport, offset: int) -> int:
    return int.from_bytes(transport.read(offset, 8), "little")
