"""A call as a JSON object: {"name": ..., "arguments": {...}}, or with "parameters"."""

from __future__ import annotations

import json
from collections.abc import Callable

from nic_frontend.parsing.delta import Calls
from nic_frontend.parsing.json_scanner import JsonScanner, behind_space

ARGUMENTS = ("arguments", "parameters")
KEYS = ("name", "type", "id", *ARGUMENTS)


class CallObject:
    """`feed` it text until `done` or `bad`. The call is `started` once its name is known and its arguments
    begin, which then go to `calls` as they come. What is wrong before that makes the object `bad`; what is
    wrong in the arguments behind it makes them `broken`: the client has seen a part of them.

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
        self._state = self._open
        self._scanner = JsonScanner()
        self._shows = False  # the value that is being read is the started call's arguments

    def feed(self, text: str, at: int) -> int:
        """The position up to which `text` was read, as JsonScanner.feed."""
        while at < len(text) and not (self.done or self.bad or self.broken):
            end = at if self._state == self._value else behind_space(text, at)
            at = end if end > at else self._state(text, at)
        return at

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
        arguments = self._key in ARGUMENTS and not self.started
        if arguments and text[at] not in '{"n':
            return self._refuse(at)
        if arguments and text[at] == "{" and self._name is not None:
            self._start(self._name)
            self._shows = True
        self._scanner = JsonScanner()
        self._state = self._value
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
            elif not self.started:
                self._learn(scanner.text)
            self._shows = False
            self._state = self._behind
        return at

    def _learn(self, value: str) -> None:
        """A value that came before the call was started."""
        if self._key == "name":
            self._name = json.loads(value) if value.startswith('"') else ""
            self.bad = not self._name or not encodes(self._name) or not self._accepts(self._name)
        elif self._key in ARGUMENTS:
            self._arguments = written_object(value)
            self.bad = self._arguments is None
        if self._name is not None and self._arguments is not None and not self.bad:
            self._start(self._name)
            self._calls.arguments(self._arguments)
            self._calls.end()

    def _start(self, name: str) -> None:
        self.started = True
        self._calls.start(name)

    def _behind(self, text: str, at: int) -> int:
        if text[at] == "}":
            return self._close(at)
        if text[at] != ",":
            return self._refuse(at)
        self._state = self._key_or_end
        return at + 1

    def _close(self, at: int) -> int:
        """The object's end. A call without arguments has none to give."""
        if self._name is None:
            return self._refuse(at)
        if not self.started:
            self._start(self._name)
            self._calls.arguments("{}")
            self._calls.end()
        self.done = True
        return at + 1


def written_object(value: str) -> str | None:
    """Arguments that came as null, as an object, or as a string with an object in it; None for others."""
    try:
        found = json.loads(value)
        if isinstance(found, str):
            value, found = found, json.loads(found)
    except (ValueError, RecursionError):
        return None
    if found is None:
        return "{}"
    return value if isinstance(found, dict) and encodes(value) else None


def encodes(text: str) -> bool:
    """Whether a JSON string has no lone surrogate, which UTF-8 cannot write."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
