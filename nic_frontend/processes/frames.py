"""Messages on a stream between two processes: 8 bytes with the length, then so many bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_LENGTH = struct.Struct("<Q")


class FrameError(RuntimeError):
    """The other side announced a message that is too long."""


def framed(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload


class Frames:
    """Takes a stream apart into its messages, which have at most `most` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The messages that `data` completes. Raises FrameError."""
        self._pending += data
        while len(self._pending) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._pending)
            if length > self._most:
                raise FrameError(f"a message of {length} bytes, where {self._most} are the most")
            end = _LENGTH.size + length
            if len(self._pending) < end:
                return
            payload = bytes(self._pending[_LENGTH.size : end])
            del self._pending[:end]
            yield payload
