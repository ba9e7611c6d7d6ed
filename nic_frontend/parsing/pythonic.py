"""Calls written as Python: [f(a=1), g(b="x")] as the whole answer (Llama 3.2, Gemma), in a block of code that
is named tool_code (Gemma), or between <|python_start|> and <|python_end|> (Llama 4).

Many an answer begins with a bracket, so the names must be tools'.
"""

from __future__ import annotations

import re

from nic_frontend.grammar.calls import Function, Mark
from nic_frontend.grammar.expression import Expression, any_of, optional, repeated, sequence
from nic_frontend.grammar.expression import literal as text_of
from nic_frontend.parsing.argument_scanner import ArgumentScanner
from nic_frontend.parsing.delta import Calls
from nic_frontend.parsing.region import BETWEEN_CALLS, Region, behind_blank
from nic_frontend.parsing.tool_call_parser import ToolCallParser

CLOSING = {"```tool_code": "```", "<|python_start|>": "<|python_end|>", "[": ""}
MAX_NAME = 256
NAME = re.compile(rf"[\w.-]{{1,{MAX_NAME}}}")


class Pythonic(ToolCallParser):
    marks = ("```tool_code", "<|python_start|>")
    first_marks = ("[",)
    block_marks = ("\n",)
    special_tokens = ("<|python_start|>", "<|python_end|>")

    def region(self, mark: str) -> Region:
        if mark in self.block_marks:
            return PythonCalls(self.calls, self.names, self.closing, is_inside=True)
        return PythonCalls(self.calls, self.names, CLOSING[mark])

    @classmethod
    def language(cls, functions: list[Function], many: bool, mark: Mark) -> Expression:
        call = any_of(
            sequence(text_of(f"{function.name}("), function.keywords(), text_of(")"))
            for function in functions
        )
        more = repeated(sequence(text_of(","), optional(text_of(" ")), call)) if many else text_of("")
        return sequence(text_of("["), call, more, text_of("]"))


class PythonCalls(Region):
    """`[f(a=1), g()]`, or with a closing mark also calls on lines of their own. A call is told to the client
    when its parenthesis is closed. `is_inside`: the block has calls already.
    """

    def __init__(self, calls: Calls, names: frozenset[str], mark: str, is_inside: bool = False) -> None:
        super().__init__(calls)
        self.closing = mark if is_inside else None
        self._names = names
        self._mark = mark
        self._listed = False
        self._name = ""
        self._arguments = ArgumentScanner()

    def begin(self, text: str, at: int) -> int:
        if (end := behind_blank(text, at)) > at:
            return end
        self._listed = text[at] == "["
        if not self._listed and not self._mark:
            return self.refuse(at)
        self.state = self._read_name
        return at + self._listed

    def _read_name(self, text: str, at: int) -> int:
        if (end := behind_blank(text, at)) > at:
            return end
        if self.closing and self.closing.startswith(text[at : at + len(self.closing)]):
            is_whole = text.startswith(self.closing, at)
            return self.end(at + len(self.closing)) if is_whole else at
        found = NAME.match(text, at)
        if found is None:
            return self.refuse(at)
        if found.end() == len(text) and found.end() - at < MAX_NAME:
            return at
        if text[found.end() : found.end() + 1] != "(" or found.group() not in self._names:
            return self.refuse(at)
        self._name, self._arguments = found.group(), ArgumentScanner()
        self.state = self._read_arguments
        return found.end()

    def _read_arguments(self, text: str, at: int) -> int:
        at = self._arguments.feed(text, at)
        if self._arguments.bad:
            return self.refuse(at)
        if self._arguments.done:
            self.calls.start(self._name)
            self.calls.arguments(self._arguments.text)
            self.calls.end()
            self.closing = self._mark
            self.state = self._between
        return at

    def _between(self, text: str, at: int) -> int:
        if (end := behind_blank(text, at)) > at:
            return end
        if text[at] in BETWEEN_CALLS:
            self.state = self._read_name
            return at + 1
        if self._listed and text[at] == "]":
            self.state = self._behind
            return self.claim(at + 1) if self._mark else self.end(at + 1)
        if self._mark and not self._listed:
            self.state = self._behind if self._mark[0] == text[at] else self._read_name
            return at
        return self.leave(at)

    def _behind(self, text: str, at: int) -> int:
        if (end := behind_blank(text, at)) > at:
            return end
        return self.behind_closing(text, at)
