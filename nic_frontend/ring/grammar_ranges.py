"""The grammars that this frontend has in its lease's heap of prompts (ringbuffer/grammar.h).

Requests with equal grammars share a range. It stays, and what is in it, after the last of them has ended,
until its room is needed: then nothing of the next equal one is written, and the scheduler finds it by its
name.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from nic_frontend.library import crc32c
from ringbuffer.heap import Heap


@dataclass(slots=True, eq=False)
class GrammarRange:
    """`offset` and `room` in words of the heap; the other numbers are those of a descriptor."""

    block: bytes
    offset: int
    room: int
    name: int
    crc32c: int
    users: int = 0
    written: bool = False  # what is there is `block`, or will be before any later submission


class GrammarRanges:
    """Ranges of `heap` of at least `least` words."""

    def __init__(self, heap: Heap, least: int = 0) -> None:
        self._heap = heap
        self._least = least
        self._names = 0
        self._ranges: OrderedDict[bytes, GrammarRange] = OrderedDict()  # last used, last

    def room(self, block: bytes) -> int:
        """Words that it takes of the heap."""
        return self._heap.rounded(max(len(block) // 4, self._least))

    def idle_words(self) -> int:
        """Of ranges that nobody uses, and that make room."""
        return sum(found.room for found in self._ranges.values() if not found.users)

    def take(self, block: bytes) -> GrammarRange | None:
        """The range of a grammar, for one user more. None: there is no room now."""
        found = self._ranges.get(block)
        if found is None:
            room = self.room(block)
            offset = self._heap.take(room)
            while offset is None and self.evict():
                offset = self._heap.take(room)
            if offset is None:
                return None
            self._names += 1
            found = self._ranges[block] = GrammarRange(block, offset, room, self._names, crc32c(block))
        self._ranges.move_to_end(block)
        found.users += 1
        return found

    def give_back(self, found: GrammarRange) -> None:
        """One user less."""
        found.users -= 1

    def evict(self) -> bool:
        """Frees the range that was not used for longest. False: all are in use."""
        idle = next((found for found in self._ranges.values() if not found.users), None)
        if idle is not None:
            del self._ranges[idle.block]
            self._heap.give_back(idle.offset)
        return idle is not None

    def forget_writes(self) -> None:
        """What was written last may be lost with the connection: all is written again when it is used."""
        for found in self._ranges.values():
            found.written = False
