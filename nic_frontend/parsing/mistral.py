"""Mistral: [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...], and since 2025 for each call
[TOOL_CALLS]name[ARGS]{...}, with [CALL_ID]... before [ARGS], or without [ARGS], in some models.
"""

from __future__ import annotations

import re

from nic_frontend.grammar.calls import Function, Mark, call_list
from nic_frontend.grammar.expression import Expression, any_of, literal, repeated, sequence
from nic_frontend.parsing.delta import Calls
from nic_frontend.parsing.json_scanner import JsonScanner
from nic_frontend.parsing.region import Objects, Region
from nic_frontend.parsing.tool_call_parser import ToolCallParser

TAG = "[TOOL_CALLS]"
NAME = re.compile(r"([\w.-]{1,256})(?:\[CALL_ID\]\w{0,64})?(?:\[ARGS\])?\s{0,16}")
BEGINNING = re.compile(r"[\w.-]{0,256}(\[[A-Z_]{0,8}(\](\w{0,64}(\[[A-Z_]{0,8}\]?)?)?)?)?\s{0,16}")  # of NAME


class Mistral(ToolCallParser):
    marks = (TAG,)
    special_tokens = (TAG, "[ARGS]", "[CALL_ID]")
    short_ids = True

    def region(self, mark: str) -> Region:
        return ListOrName(self.calls)

    @classmethod
    def language(cls, functions: list[Function], many: bool, mark: Mark) -> Expression:
        """In both of the ways: the model knows which is its own."""
        tag, arguments = literal(mark(TAG)), literal(mark("[ARGS]"))
        named = any_of(
            sequence(tag, literal(function.name), arguments, function.arguments()) for function in functions
        )
        listed = sequence(tag, call_list(functions, "arguments", many))
        return any_of([listed, repeated(named, 1) if many else named])


class ListOrName(Objects):
    """The first character tells a list of objects from a call that begins with its name."""

    def __init__(self, calls: Calls) -> None:
        super().__init__(calls, lambda name: True)
        self._arguments = JsonScanner()

    def begin(self, text: str, at: int) -> int:
        if not text[at].isspace() and text[at] != "[":
            self.state = self._read_name
            return at
        return super().begin(text, at)

    def _read_name(self, text: str, at: int) -> int:
        found = NAME.match(text, at)
        if found and text[found.end() : found.end() + 1] == "{":
            self.calls.start(found.group(1))
            self.in_call = True
            self.state = self._read_arguments
            return found.end()
        return at if BEGINNING.fullmatch(text, at) else self.refuse(at)

    def cut(self, rest: str) -> str:
        self.calls.arguments(self._arguments.cut())
        return super().cut(rest)

    def _read_arguments(self, text: str, at: int) -> int:
        at = self._arguments.feed(text, at)
        self.calls.arguments(self._arguments.take())
        if self._arguments.bad:  # the client has seen a part of them: they go on to the end
            self.calls.arguments(text[at:])
            return len(text)
        if not self._arguments.done:
            return at
        self.calls.end()
        return self.end(at)
