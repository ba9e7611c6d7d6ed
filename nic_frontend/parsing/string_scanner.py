"""A string as Python writes it, read character by character as it arrives and written as JSON."""

from __future__ import annotations

import json
import re
import unicodedata

from nic_frontend.parsing.halves import Halves
from nic_frontend.parsing.scanner import Scanner

QUOTES = "\"'"
PREFIXES = {"r": True, "R": True, "u": False, "U": False}  # of text: whether it is raw
SPACE = re.compile(r"\s*")
PLAIN = re.compile(r"[^\"'\\]*")
HEX = "[0-9a-fA-F]"
ESCAPE = re.compile(
    rf"\\(?:x(?P<byte>{HEX}{{2}})|u(?P<half>{HEX}{{4}})|U(?P<point>{HEX}{{8}})|N\{{(?P<name>[^{{}}]{{1,100}})\}}"
    r"|(?P<octal>[0-7]{1,3})|(?P<line>\r\n?|\n)|(?P<other>[^xuUN0-7\r\n]))"
)
ESCAPE_BEGUN = re.compile(
    rf"\\(?:x{HEX}?|u{HEX}{{0,3}}|U{HEX}{{0,7}}|N(?:\{{[^{{}}]{{0,100}})?|[0-7]{{1,2}}|\r)?"
)
CONTROLS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class StringScanner(Scanner):
    """`feed` it text from the quote on until `done` or `bad`. `text` is then a string of JSON that UTF-8 can
    write.

    Strings one behind another are one, so it ends in front of what is none. A line may end within any of
    them, and escapes of halves of characters mean what they mean in JSON.
    """

    def __init__(self, is_raw: bool = False) -> None:
        super().__init__(self._opening)
        self._pieces.append('"')
        self._quote = ""
        self._is_raw = is_raw
        self._halves = Halves()

    def _opening(self, text: str, at: int) -> int:
        quotes = text[at : at + 3]
        n = len(quotes) - len(quotes.lstrip(quotes[0]))
        if n < 3 and at + n == len(text):
            return at
        self._quote = quotes[0] * n
        self._state = self._behind if n == 2 else self._inside
        return at + n

    def _inside(self, text: str, at: int) -> int:
        if (found := PLAIN.match(text, at)) and found.group():
            self._keep(found.group())
            return found.end()
        if text[at] == "\\":
            self._state = self._raw_pair if self._is_raw else self._escape
            return at
        if text.startswith(self._quote, at):
            self._pieces.append(self._halves.end())
            self._state = self._behind
            return at + len(self._quote)
        if self._quote.startswith(text[at:]):
            return at
        self._keep(text[at])
        return at + 1

    def _raw_pair(self, text: str, at: int) -> int:
        """A backslash, and what would end the string but for it."""
        if at + 1 == len(text):
            return at
        self._keep(text[at : at + 2])
        self._state = self._inside
        return at + 2

    def _escape(self, text: str, at: int) -> int:
        if ESCAPE_BEGUN.fullmatch(text, at):
            return at
        found = ESCAPE.match(text, at)
        meaning = escaped(found) if found else None
        if found is None or meaning is None:
            self.bad = True
            return at
        if isinstance(meaning, int) and 0xD800 <= meaning < 0xE000:
            self._pieces.append(self._halves.take(f"\\u{meaning:04x}", meaning))
        else:
            self._keep(chr(meaning) if isinstance(meaning, int) else meaning)
        self._state = self._inside
        return found.end()

    def _keep(self, text: str) -> None:
        if text:
            self._pieces.append(self._halves.end() + json.dumps(text, ensure_ascii=False)[1:-1])

    def _behind(self, text: str, at: int) -> int:
        if (at := behind_space(text, at)) == len(text):
            return at
        prefix = text[at] if text[at] in PREFIXES else ""
        if prefix and at + 1 == len(text):
            return at
        if text[at + len(prefix)] in QUOTES:
            self._is_raw = PREFIXES.get(prefix, False)
            self._state = self._opening
            return at + len(prefix)
        self._pieces.append('"')
        self.done = True
        return at


def behind_space(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return found.end() if found else at


def escaped(found: re.Match[str]) -> int | str | None:
    """What a match of ESCAPE stands for: a code point, or some text. None: Python knows no such escape."""
    kind = found.lastgroup
    assert kind is not None
    text = found[kind]
    if kind in ("byte", "half", "point"):
        point = int(text, 16)
        return point if point <= 0x10FFFF else None
    if kind == "octal":
        return int(text, 8)
    if kind == "line":  # the text goes on in the next one
        return ""
    if kind == "name":
        try:
            return unicodedata.lookup(text)
        except KeyError:
            return None
    return CONTROLS.get(text) or (text if text in "\\'\"" else found[0])
