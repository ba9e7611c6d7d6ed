"""What each client holds of the slots and the heaps. Whoever holds something leaves as much to the others."""

from __future__ import annotations

from typing import NamedTuple


class Need(NamedTuple):
    """Slots, and tokens and records of the heaps."""

    slots: int
    prompts: int
    outputs: int

    def plus(self, other: Need) -> Need:
        return Need(self.slots + other.slots, self.prompts + other.prompts, self.outputs + other.outputs)

    def minus(self, other: Need) -> Need:
        return Need(self.slots - other.slots, self.prompts - other.prompts, self.outputs - other.outputs)

    def within(self, other: Need) -> bool:
        return all(a <= b for a, b in zip(self, other, strict=True))


NOTHING = Need(0, 0, 0)


class Shares:
    def __init__(self) -> None:
        self._held: dict[int, Need] = {}  # by client
        self._taken: dict[int, tuple[int, Need]] = {}  # by slot

    def allow(self, client: int, need: Need, unused: Need) -> bool:
        """Whether the client may have `need` of what is unused: anything if it holds nothing, else what
        leaves at least as much as it then holds.
        """
        held = self._held.get(client)
        return held is None or held.plus(need).within(unused.minus(need))

    def took(self, client: int, slot: int, need: Need) -> None:
        self._taken[slot] = (client, need)
        self._held[client] = self._held.get(client, NOTHING).plus(need)

    def gave_back(self, slot: int) -> None:
        """Its request has ended. Harmless when it has before."""
        if (taken := self._taken.pop(slot, None)) is None:
            return
        client, need = taken
        left = self._held[client].minus(need)
        if left == NOTHING:
            del self._held[client]
        else:
            self._held[client] = left
