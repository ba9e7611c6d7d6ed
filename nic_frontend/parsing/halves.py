"""Characters that escapes write in two halves (surrogates), as JSON and JavaScript have them."""

from __future__ import annotations

LOST = "\ufffd"  # what stands where half of a character is missing


class Halves:
    r"""Keeps the first half of a character until it is known whether the other follows: the two, as escapes
    of JSON, are then one character. A half by itself is no text, and UTF-8 cannot write it.
    """

    def __init__(self) -> None:
        self._first = ""

    def take(self, escape: str, point: int) -> str:
        """What can be written now that this escape was read, which means this code point."""
        first, self._first = self._first, ""
        if 0xD800 <= point < 0xDC00:
            self._first = escape
            return LOST if first else ""
        if 0xDC00 <= point < 0xE000:
            return first + escape if first else LOST
        return (LOST if first else "") + escape

    def end(self) -> str:
        """What can be written now that no escape follows."""
        return self.take("", 0)

    def cut(self) -> str:
        """The half that waits for another, as it was read."""
        first, self._first = self._first, ""
        return first
