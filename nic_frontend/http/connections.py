"""All connections of a frontend: at most so many, whoever opens them (F9)."""

from __future__ import annotations

import logging
import time
from typing import Protocol

log = logging.getLogger(__name__)

TOLD_S = 10.0  # between two lines of the log about the same


class Droppable(Protocol):
    def drop(self) -> None:
        """Ends the connection at once."""


class Connections:
    """Where there are too many, the one that has kept the server waiting for longest makes room.

    A connection keeps the server waiting while a request's head or body is to come. One that is owed an
    answer is never ended for another.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._all: set[Droppable] = set()
        self._awaited: dict[Droppable, None] = {}  # in the order in which they began to be
        self._told = -TOLD_S
        self.ending = False  # each connection serves one more request at most
        self.dropped = 0  # to make room
        self.refused = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def awaited(self) -> int:
        """Of how many connections a request may still come."""
        return len(self._awaited)

    def opened(self, connection: Droppable) -> bool:
        """A new one. False: there is no room for it."""
        if len(self._all) >= self._most and not self._make_room():
            self.refused += 1
            return False
        self._all.add(connection)
        self.await_(connection)
        return True

    def await_(self, connection: Droppable) -> None:
        """It begins to keep the server waiting."""
        if connection in self._all:
            self._awaited.pop(connection, None)
            self._awaited[connection] = None

    def arrived(self, connection: Droppable) -> None:
        """It has sent all that was awaited."""
        self._awaited.pop(connection, None)

    def closed(self, connection: Droppable) -> None:
        self._all.discard(connection)
        self._awaited.pop(connection, None)

    def _make_room(self) -> bool:
        now = time.monotonic()
        if now - self._told > TOLD_S:
            self._told = now
            log.warning(
                "%d connections are open, which is the limit (--max-connections, ulimit -n): "
                "the ones that wait for longest make room",
                len(self._all),
            )
        longest = next(iter(self._awaited), None)
        if longest is None:
            return False
        self.closed(longest)
        self.dropped += 1
        longest.drop()
        return True
