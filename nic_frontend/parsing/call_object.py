"""A call as a JSON object: {"name": ..., "arguments": {...}}, or with "parameters"."""

from __future__ import annotations

import json
from collections.abc import Callable

from nic_frontend.parsing.delta import Calls
from nic_frontend.parsing.halves import LOST
from nic_frontend.parsing.json_scanner import JsonScanner, behind_space

State = Callable[[str, int], int]
ARGUMENTS = ("arguments", "parameters")
KEYS = ("name", "type", "id", *ARGUMENTS)


class CallObject:
    """`feed` it text until `done` or `bad`. The call is `started` once its name is known and its arguments
    begin, which then go to `calls` as they come. What is wrong before that makes the object `bad`; what is
    wrong in the arguments behind it makes them `broken`: the client has seen a part of them.

    Members that are none of a call's, or that it has already, are `aside`: they are shown as text behind the
    call. Where a call has no arguments, they make the object bad: they may be what it was to be called with.

    `accepts` says whether a name can be called. If `strict`, other keys than a call's make it bad at once: an
    answer in JSON then need not be held back up to its end.
    """

    def __init__(self, calls: Calls, accepts: Callable[[str], bool], strict: bool) -> None:
        self.done = False
        self.bad = False
        self.started = False
        self.broken = False
        self._calls = calls
        self._accepts = accepts
        self._strict = strict
        self._name: str | None = None
        self._arguments: str | None = None  # complete, before the name was known
        self._key = ""
        self._keys: set[str] = set()
        self._state = self._open
        self._scanner = JsonScanner()
        self._shows = False  # the value that is being read is the started call's arguments
        self._member: list[str] = []  # as it was read
        self._is_aside = False  # that member
        self._aside: list[str] = []

    def feed(self, text: str, at: int) -> int:
        """The position up to which `text` was read, as JsonScanner.feed."""
        while at < len(text) and not (self.done or self.bad or self.broken):
            before, state = at, self._state
            is_token = state in (self._read_key, self._value)  # whose spaces are its own
            end = at if is_token else behind_space(text, at)
            at = end if end > at else state(text, at)
            if self._in_member(state):
                self._member.append(text[before:at])
        return at

    def aside(self) -> str:
        """The members that were not used, and what was read of the one that is not complete."""
        if self._is_aside or self._in_member(self._state):
            self._set_aside()
        return ", ".join(self._aside)

    def _in_member(self, state: State) -> bool:
        """Other than the arguments that the client sees."""
        return not self._shows and state in (self._read_key, self._colon, self._before_value, self._value)

    def cut(self) -> None:
        """The answer has ended here."""
        if self._shows:
            self._calls.arguments(self._scanner.cut())

    def _set_aside(self) -> None:
        if member := "".join(self._member).strip():
            self._aside.append(member)
        self._member, self._is_aside = [], False

    def _refuse(self, at: int) -> int:
        self.bad = True
        return at

    def _open(self, text: str, at: int) -> int:
        if text[at] != "{":
            return self._refuse(at)
        self._state = self._key_or_end
        return at + 1

    def _key_or_end(self, text: str, at: int) -> int:
        if text[at] == "}":
            return self._close(at)
        if text[at] != '"':
            return self._refuse(at)
        self._scanner = JsonScanner()
        self._state = self._read_key
        return at

    def _read_key(self, text: str, at: int) -> int:
        at = self._scanner.feed(text, at)
        self.bad = self._scanner.bad
        if self._scanner.done:
            self._key = json.loads(self._scanner.text)
            self.bad = self._strict and self._key not in KEYS
            self._state = self._colon
        return at

    def _colon(self, text: str, at: int) -> int:
        if text[at] != ":":
            return self._refuse(at)
        self._state = self._before_value
        return at + 1

    def _before_value(self, text: str, at: int) -> int:
        self._scanner = JsonScanner()
        self._state = self._value
        key = "arguments" if self._key in ARGUMENTS else self._key
        self._is_aside = key not in KEYS or key in self._keys
        if key in self._keys and not self.started:  # nothing says which of the two is meant
            return self._refuse(at)
        self._keys.add(key)
        if key != "arguments" or self._is_aside:
            return at
        if text[at] not in '{"n':
            return self._refuse(at)
        if text[at] == "{" and self._name is not None:
            self._start(self._name)
            self._shows = True
        return at

    def _value(self, text: str, at: int) -> int:
        scanner = self._scanner
        at = scanner.feed(text, at)
        if self._shows:
            self._calls.arguments(scanner.take())
            self.broken = scanner.bad
        else:
            self.bad = scanner.bad
        if scanner.done:
            if self._shows:
                self._calls.end()
            elif not self._is_aside:
                self._learn(scanner.text)
            self._shows = False
            self._state = self._behind
        return at

    def _learn(self, value: str) -> None:
        """A value that is a call's."""
        if self._key == "name":
            self._name = json.loads(value) if value.startswith('"') else ""
            self.bad = not self._name or LOST in self._name or not self._accepts(self._name)
        elif self._key in ARGUMENTS:
            self._arguments = written_object(value)
            self.bad = self._arguments is None
        if self._name is not None and self._arguments is not None and not (self.bad or self.started):
            self._start(self._name)
            self._calls.arguments(self._arguments)
            self._calls.end()

    def _start(self, name: str) -> None:
        self.started = True
        self._calls.start(name)

    def _behind(self, text: str, at: int) -> int:
        if self._is_aside:
            self._set_aside()
        self._member = []
        if text[at] == "}":
            return self._close(at)
        if text[at] != ",":
            return self._refuse(at)
        self._state = self._key_or_end
        return at + 1

    def _close(self, at: int) -> int:
        """The object's end. A call without arguments has none to give."""
        if self._name is None or (self._aside and not self.started):
            return self._refuse(at)
        if not self.started:
            self._start(self._name)
            self._calls.arguments("{}")
            self._calls.end()
        self.done = True
        return at + 1


def written_object(value: str) -> str | None:
    """Arguments that came as null, as an object, or as a string with an object in it; None for others."""
    text = json.loads(value) if value.startswith('"') else value
    if not text.strip() or text.strip() == "null":
        return "{}"
    scanner = JsonScanner()
    end = scanner.feed(text, 0)
    found = scanner.text.strip()
    is_object = scanner.done and found.startswith("{") and not text[end:].strip()
    return found if is_object else None
