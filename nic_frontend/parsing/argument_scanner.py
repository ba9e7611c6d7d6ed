"""The arguments of a call in Python, read character by character as they arrive and written as JSON."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from nic_frontend.grammar.keyword_arguments import BARE_NAME
from nic_frontend.parsing.python_numbers import number
from nic_frontend.parsing.scanner import Scanner, State
from nic_frontend.parsing.string_scanner import PREFIXES, QUOTES, StringScanner, behind_space

MAX_DEPTH = 200  # of brackets, as in Python itself

NAME_PART = re.compile(r"[\w$@.:/-]*")
NUMBER_PART = re.compile(r"[\w.]*")
BEFORE_SIGN = re.compile(r"[0-9_.]+[eE]")
FIRST_OF_NUMBER = ".0123456789"
CONSTANTS = {"True": "true", "False": "false", "None": "null"}
CONSTANTS |= {constant: constant for constant in CONSTANTS.values()}  # which models write, too
WORD = re.compile(r"\w{1,6}")
CLOSES = {"(": ")", "[": "]", "{": "}", "f(": ")", "**{": "}"}


@dataclass(slots=True)
class Bracket:
    """`kind`: also "f(" around the arguments, and "**{" around arguments in a dictionary."""

    kind: str
    place: int  # of its piece
    n: int = 0  # items, or members
    is_tuple: bool = False


class ArgumentScanner(Scanner):
    """`feed` it text from a call's opening parenthesis on until `done` or `bad`. `text` is then an object of
    JSON that UTF-8 can write.

    Arguments have names and literals for values, and are written in their order with the digits that they
    have. What would not be a literal is `bad`, comments and sets among it. A line may end within any string.
    """

    def __init__(self) -> None:
        super().__init__(self._begin)
        self._open: list[Bracket] = []
        self._name: list[str] = []
        self._number: list[str] = []
        self._has_exponent = False
        self._string = StringScanner()
        self._is_key = False  # the string is a dictionary's key

    def _refuse(self, at: int) -> int:
        self.bad = True
        return at

    def _begin(self, text: str, at: int) -> int:
        return self._enter("f(", "{", self._argument, at)

    # ---------------------------------------------------------------- arguments, items and members

    def _argument(self, text: str, at: int) -> int:
        if (at := behind_space(text, at)) == len(text):
            return at
        if text[at] == ")":
            return self._leave(at)
        if text[at] != "*":
            self._name = []
            self._state = self._read_name
            return at
        if at + 1 == len(text):
            return at
        self._state = self._unpacked
        return at + 2 if text[at + 1] == "*" else self._refuse(at)

    def _unpacked(self, text: str, at: int) -> int:
        if (at := behind_space(text, at)) == len(text):
            return at
        return self._enter("**{", "", self._key, at) if text[at] == "{" else self._refuse(at)

    def _read_name(self, text: str, at: int) -> int:
        if found := NAME_PART.match(text, at):
            self._name.append(found.group())
            at = found.end()
        if at == len(text):
            return at
        name = "".join(self._name)
        if not BARE_NAME.fullmatch(name):
            return self._refuse(at)
        self._separate(self._open[0])
        self._pieces.append(json.dumps(name, ensure_ascii=False))
        self._state = self._equals
        return at

    def _equals(self, text: str, at: int) -> int:
        return self._before_value("=", text, at)

    def _colon(self, text: str, at: int) -> int:
        return self._before_value(":", text, at)

    def _before_value(self, sign: str, text: str, at: int) -> int:
        if (at := behind_space(text, at)) == len(text):
            return at
        if text[at] != sign:
            return self._refuse(at)
        self._pieces.append(": ")
        self._state = self._value
        return at + 1

    def _key(self, text: str, at: int) -> int:
        if (at := behind_space(text, at)) == len(text):
            return at
        if text[at] == "}":
            return self._leave(at)
        if text[at] not in QUOTES:
            return self._refuse(at)
        self._separate(self._open[0 if self._open[-1].kind == "**{" else -1])
        return self._begin_string(at, is_key=True)

    def _item(self, text: str, at: int) -> int:
        if (at := behind_space(text, at)) == len(text):
            return at
        if text[at] == CLOSES[self._open[-1].kind]:
            return self._leave(at)
        self._separate(self._open[-1])
        self._state = self._value
        return at

    def _separate(self, bracket: Bracket) -> None:
        if bracket.n:
            self._pieces.append(", ")
        bracket.n += 1

    def _behind(self, text: str, at: int) -> int:
        """Behind a value."""
        if (at := behind_space(text, at)) == len(text):
            return at
        bracket = self._open[-1]
        if text[at] == CLOSES[bracket.kind]:
            return self._leave(at)
        if text[at] != ",":
            return self._refuse(at)
        bracket.is_tuple = bracket.kind == "("
        if bracket.kind == "f(":
            self._state = self._argument
        else:
            self._state = self._key if bracket.kind in ("{", "**{") else self._item
        return at + 1

    def _enter(self, kind: str, piece: str, state: State, at: int) -> int:
        """`at` is the position of the bracket."""
        if len(self._open) == MAX_DEPTH:
            return self._refuse(at)
        self._open.append(Bracket(kind, len(self._pieces)))
        self._pieces.append(piece)
        self._state = state
        return at + 1

    def _leave(self, at: int) -> int:
        bracket = self._open.pop()
        if bracket.kind == "(":
            if bracket.is_tuple or not bracket.n:
                self._pieces[bracket.place] = "["
                self._pieces.append("]")
        elif bracket.kind != "**{":
            self._pieces.append("]" if bracket.kind == "[" else "}")
        self.done = not self._open
        self._state = self._behind
        return at + 1

    # ---------------------------------------------------------------- literals

    def _value(self, text: str, at: int) -> int:
        if (at := behind_space(text, at)) == len(text):
            return at
        character = text[at]
        if character in QUOTES:
            return self._begin_string(at)
        if character == "[":
            return self._enter("[", "[", self._item, at)
        if character == "(":
            return self._enter("(", "", self._item, at)
        if character == "{":
            return self._enter("{", "{", self._key, at)
        if character in "+-":
            self._pieces.append("-" if character == "-" else "")
            self._state = self._unsigned
            return at + 1
        if character in FIRST_OF_NUMBER:
            return self._unsigned(text, at)
        self._state = self._word
        return at

    def _unsigned(self, text: str, at: int) -> int:
        if (at := behind_space(text, at)) == len(text):
            return at
        if text[at] not in FIRST_OF_NUMBER:
            return self._refuse(at)
        self._number, self._has_exponent = [], False
        self._state = self._read_number
        return at

    def _read_number(self, text: str, at: int) -> int:
        if found := NUMBER_PART.match(text, at):
            self._number.append(found.group())
            at = found.end()
        if at == len(text):
            return at
        if text[at] in "+-" and not self._has_exponent:
            self._has_exponent = True
            if BEFORE_SIGN.fullmatch("".join(self._number)):
                self._number.append(text[at])
                return at + 1
        written = number("".join(self._number))
        if written is None:
            return self._refuse(at)
        self._pieces.append(written)
        self._state = self._behind
        return at

    def _word(self, text: str, at: int) -> int:
        """A constant, or what stands before a string."""
        found = WORD.match(text, at)
        if found is None:
            return self._refuse(at)
        word, end = found.group(), found.end()
        if end == len(text) and len(word) <= len("False"):
            return at
        if word in PREFIXES and text[end] in QUOTES:
            return self._begin_string(end, is_raw=PREFIXES[word])
        if word not in CONSTANTS:
            return self._refuse(at)
        self._pieces.append(CONSTANTS[word])
        self._state = self._behind
        return end

    def _begin_string(self, at: int, is_raw: bool = False, is_key: bool = False) -> int:
        """`at` is the position of the quote."""
        self._string, self._is_key = StringScanner(is_raw), is_key
        self._state = self._read_string
        return at

    def _read_string(self, text: str, at: int) -> int:
        at = self._string.feed(text, at)
        self.bad = self._string.bad
        if self._string.done:
            self._pieces.append(self._string.text)
            self._state = self._colon if self._is_key else self._behind
        return at
