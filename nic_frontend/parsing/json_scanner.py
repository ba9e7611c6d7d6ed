"""One JSON value, read character by character as it arrives (RFC 8259)."""

from __future__ import annotations

import re

from nic_frontend.parsing.halves import Halves

SPACE = re.compile(r"[ \t\r\n]*")
PLAIN = re.compile(r'[^"\\\x00-\x1f]*')  # of a string
NUMBER_PART = re.compile(r"[-+.eE0-9]*")
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
# Those of Python, which models write, are no JSON: it has no number that is none, and no end to its numbers.
LITERALS = {
    "true": "true",
    "false": "false",
    "null": "null",
    "True": "true",
    "False": "false",
    "None": "null",
    "NaN": "null",
    "Infinity": "1e999",
}
BEGINNINGS = {literal[0] for literal in LITERALS}
CLOSES = {"{": "}", "[": "]"}


def behind_space(text: str, at: int) -> int:
    """The first position from `at` on that holds no space."""
    found = SPACE.match(text, at)
    return found.end() if found else at


class JsonScanner:
    """`feed` it text until `done` or `bad`. `text` is the value so far as JSON that UTF-8 can write; what is
    `bad` was kept as it is.

    A control character in a string, which models write and JSON forbids, becomes an escape. Half a character
    becomes U+FFFD.
    """

    def __init__(self) -> None:
        self.done = False
        self.bad = False
        self._pieces: list[str] = []
        self._open: list[str] = []  # brackets
        self._state = self._value
        self._number: list[str] = []
        self._held = ""  # of a literal or an escape: what it means is not known yet
        self._halves = Halves()

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def take(self) -> str:
        """`text`, which begins anew."""
        text, self._pieces = self.text, []
        return text

    def cut(self) -> str:
        """What is not in `text` yet, as it was read: there is no more to come."""
        held, self._held = self._halves.cut() + self._held, ""
        return held

    def feed(self, text: str, at: int) -> int:
        """The position up to which `text` was read from `at`: where the value ended, or what cannot be in it,
        or the end.
        """
        while at < len(text) and not self.done and not self.bad:
            at = self._state(text, at)
        return at

    def _refuse(self, at: int) -> int:
        self.bad = True
        self._keep(self.cut())
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
        elif character in BEGINNINGS:
            self._state = self._literal
            return at
        elif character == "-" or character.isdecimal():
            self._number = []
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
        if text[at] == "\\":
            self._held = "\\"
            self._state = self._escape
            return at + 1
        self._keep(self._halves.end())
        if found := PLAIN.match(text, at):
            at += self._keep(found.group())
        if at == len(text) or text[at] == "\\":
            return at
        if text[at] == '"':
            self._keep(text[at])
            self._ended()
        else:
            self._keep(f"\\u{ord(text[at]):04x}")
        return at + 1

    def _escape(self, text: str, at: int) -> int:
        expected = '"\\/bfnrtu' if self._held == "\\" else "0123456789abcdefABCDEF"
        if text[at] not in expected:
            return self._refuse(at)
        self._held += text[at]
        if self._held[1] != "u" or len(self._held) == len("\\u0000"):
            self._keep(self._halves.take(self._held, int(self._held[2:] or "0", 16)))
            self._held = ""
            self._state = self._string
        return at + 1

    def _literal(self, text: str, at: int) -> int:
        word = self._held + text[at]
        if not any(literal.startswith(word) for literal in LITERALS):
            return self._refuse(at)
        self._held = word
        if word in LITERALS:
            self._held = ""
            self._keep(LITERALS[word])
            self._ended()
        return at + 1

    def _digits(self, text: str, at: int) -> int:
        if found := NUMBER_PART.match(text, at):
            self._number.append(found.group())
            at += self._keep(found.group())
        if at == len(text):
            return at
        number = "".join(self._number)
        if number == "-" and text[at] == "I":
            self._state = self._literal
            return at
        if not NUMBER.fullmatch(number):
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
