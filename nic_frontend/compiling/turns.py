"""Whose turn it is: of what waits, clients take turns."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """At most `most` things that wait, each for a client."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: OrderedDict[int, deque[T]] = OrderedDict()  # by client; the next client's first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def first(self) -> T | None:
        """Whose turn it is."""
        return next(iter(self._waiting.values()))[0] if self._waiting else None

    def add(self, client: int, thing: T) -> T | None:
        """What has no room then: the last of the client's for whom most wait, which may be this one."""
        self._waiting.setdefault(client, deque()).append(thing)
        self._count += 1
        if self._count <= self._most:
            return None
        longest = max(len(things) for things in self._waiting.values())
        if len(self._waiting[client]) == longest:
            loser = client
        else:
            loser = next(client for client, things in self._waiting.items() if len(things) == longest)
        lost = self._waiting[loser][-1]
        self.remove(loser, lost)
        return lost

    def next(self) -> T | None:
        """Takes out whose turn it is; None: nothing waits."""
        if not self._waiting:
            return None
        client, things = self._waiting.popitem(last=False)
        found = things.popleft()
        self._count -= 1
        if things:
            self._waiting[client] = things  # behind all others
        return found

    def remove(self, client: int, thing: T) -> bool:
        """Takes out what waits no more. False: it did not wait."""
        things = self._waiting.get(client)
        if things is None or thing not in things:
            return False
        things.remove(thing)
        self._count -= 1
        if not things:
            del self._waiting[client]
        return True
