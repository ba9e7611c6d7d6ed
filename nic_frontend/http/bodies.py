"""The bytes of all requests' bodies that are being read and understood: at most so many (F9)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nic_frontend.errors import ApiError, unavailable

SMALL = 16 << 10  # bytes of each body that do not count: whoever sends large ones is in no small one's way


class Body:
    """What one body has of the memory."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._size = 0

    def grow(self, n: int) -> None:
        """Takes the memory of `n` more bytes. Raises ApiError 503 when there is none."""
        before, self._size = self.counted, self._size + n
        self._bodies.take(self.counted - before)

    @property
    def size(self) -> int:
        """Bytes that have come."""
        return self._size

    @property
    def counted(self) -> int:
        return max(0, self._size - SMALL)


class Bodies:
    def __init__(self, most: int) -> None:
        self._most = most
        self.held = 0

    @contextmanager
    def new(self) -> Iterator[Body]:
        """A body, for as long as what it says is needed as it came."""
        body = Body(self)
        try:
            yield body
        finally:
            self.held -= body.counted

    def take(self, n: int) -> None:
        self.held += n
        if self.held > self._most:
            raise full()


def full() -> ApiError:
    error = unavailable("the requests that arrive now are too large together; retry shortly")
    error.headers["connection"] = "close"  # the rest of the body is not wanted
    return error
