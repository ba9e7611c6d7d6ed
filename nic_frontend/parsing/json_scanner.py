"""One JSON value, read character by character as it arrives (RFC 8259)."""

from __future__ import annotations

import re

SPACE = re.compile(r"[ \t\r\n]*")
PLAIN = re.compile(r'[^"\\\x00-\x1f]*')  # of a string
NUMBER_PART = re.compile(r"[-+.eE0-9]*")
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
LITERALS = {"t": "true", "f": "false", "n": "null"}
CLOSES = {"{": "}", "[": "]"}


def behind_space(text: str, at: int) -> int:
    """The first position from `at` on that holds no space."""
    found = SPACE.match(text, at)
    return found.end() if found else at


class JsonScanner:
    """`feed` it text until `done` or `bad`. `text` is the value so far as JSON.

    A control character in a string, which models write and JSON forbids, becomes an escape.
    """

    def __init__(self) -> None:
        self.done = False
        self.bad = False
        self._pieces: list[str] = []
        self._open: list[str] = []  # brackets
        self._state = self._value
        self._number = ""
        self._rest = ""  # of a literal
        self._hex = 0  # digits that an escape still needs

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def take(self) -> str:
        """`text`, which begins anew."""
        text, self._pieces = self.text, []
        return text

    def feed(self, text: str, at: int) -> int:
        """The position up to which `text` was read from `at`: where the value ended, or what cannot be in it,
        or the end.
        """
        while at < len(text) and not self.done and not self.bad:
            at = self._state(text, at)
        return at

    def _refuse(self, at: int) -> int:
        self.bad = True
        return at

    def _keep(self, piece: str) -> int:
        self._pieces.append(piece)
        return len(piece)

    def _blank(self, text: str, at: int) -> int:
        """The position behind spaces, which are kept."""
        return at + self._keep(text[at : behind_space(text, at)])

    def _value(self, text: str, at: int) -> int:
        if (at := self._blank(text, at)) == len(text):
            return at
        character = text[at]
        if character in CLOSES:
            self._open.append(character)
            self._state = self._first_key if character == "{" else self._first_item
        elif character == '"':
            self._state = self._string
        elif character in LITERALS:
            self._rest = LITERALS[character][1:]
            self._state = self._literal
        elif character == "-" or character.isdecimal():
            self._number = ""
            self._state = self._digits
            return at
        else:
            return self._refuse(at)
        return at + self._keep(character)

    def _first_item(self, text: str, at: int) -> int:
        if (at := self._blank(text, at)) == len(text):
            return at
        self._state = self._behind if text[at] == "]" else self._value
        return at

    def _first_key(self, text: str, at: int) -> int:
        if (at := self._blank(text, at)) == len(text):
            return at
        self._state = self._behind if text[at] == "}" else self._key
        return at

    def _key(self, text: str, at: int) -> int:
        if (at := self._blank(text, at)) == len(text):
            return at
        if text[at] != '"':
            return self._refuse(at)
        self._open.append(":")
        self._state = self._string
        return at + self._keep('"')

    def _colon(self, text: str, at: int) -> int:
        if (at := self._blank(text, at)) == len(text):
            return at
        if text[at] != ":":
            return self._refuse(at)
        self._open.pop()
        self._state = self._value
        return at + self._keep(":")

    def _string(self, text: str, at: int) -> int:
        if found := PLAIN.match(text, at):
            at += self._keep(found.group())
        if at == len(text):
            return at
        character = text[at]
        if character == '"':
            self._keep(character)
            self._ended()
        elif character == "\\":
            self._keep(character)
            self._state = self._escape
        else:
            self._keep(f"\\u{ord(character):04x}")
        return at + 1

    def _escape(self, text: str, at: int) -> int:
        if text[at] not in '"\\/bfnrtu':
            return self._refuse(at)
        self._hex = 4
        self._state = self._hexadecimal if text[at] == "u" else self._string
        return at + self._keep(text[at])

    def _hexadecimal(self, text: str, at: int) -> int:
        if text[at] not in "0123456789abcdefABCDEF":
            return self._refuse(at)
        self._hex -= 1
        if self._hex == 0:
            self._state = self._string
        return at + self._keep(text[at])

    def _literal(self, text: str, at: int) -> int:
        if text[at] != self._rest[0]:
            return self._refuse(at)
        self._rest = self._rest[1:]
        self._keep(text[at])
        if not self._rest:
            self._ended()
        return at + 1

    def _digits(self, text: str, at: int) -> int:
        if found := NUMBER_PART.match(text, at):
            self._number += found.group()
            at += self._keep(found.group())
        if at == len(text):
            return at
        if not NUMBER.fullmatch(self._number):
            return self._refuse(at)
        self._ended()
        return at

    def _ended(self) -> None:
        """A value, or a key, is complete."""
        if self._open and self._open[-1] == ":":
            self._state = self._colon
        elif self._open:
            self._state = self._behind
        else:
            self.done = True

    def _behind(self, text: str, at: int) -> int:
        """Behind a value in an object or an array."""
        if (at := self._blank(text, at)) == len(text):
            return at
        if text[at] == CLOSES[self._open[-1]]:
            self._open.pop()
            self._keep(text[at])
            self._ended()
        elif text[at] == ",":
            self._keep(text[at])
            self._state = self._key if self._open[-1] == "{" else self._value
        else:
            return self._refuse(at)
        return at + 1
