"""What scanners of Python share: text comes in pieces, and a state reads as much as it understands."""

from __future__ import annotations

from collections.abc import Callable

State = Callable[[str, int], int]  # from a text and a position to the position up to which it was read


class Scanner:
    """`feed` it text until `done` or `bad`. `text` is then what was read, written as JSON.

    A state that reads nothing and stays the state wants more text.
    """

    def __init__(self, first: State) -> None:
        self.done = False
        self.bad = False
        self._pieces: list[str] = []
        self._state = first

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def feed(self, text: str, at: int) -> int:
        """The position up to which `text` was read. What was not comes again, with more behind it."""
        while at < len(text) and not self.done and not self.bad:
            before, state = at, self._state
            at = state(text, at)
            if at == before and self._state == state:
                break
        return at
