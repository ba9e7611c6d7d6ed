"""Calls written as Python: [f(a=1), g(b="x")] as the whole answer (Llama 3.2, Gemma), in a block of code that
is named tool_code (Gemma), or between <|python_start|> and <|python_end|> (Llama 4).

Many an answer begins with a bracket, so the names must be tools'.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from nic_frontend.grammar.calls import Function, Mark
from nic_frontend.grammar.expression import Expression, any_of, optional, repeated, sequence
from nic_frontend.grammar.expression import literal as text_of
from nic_frontend.parsing.call_object import encodes
from nic_frontend.parsing.delta import Calls
from nic_frontend.parsing.region import Region, begun
from nic_frontend.parsing.tool_call_parser import ToolCallParser

CLOSING = {"```tool_code": "```", "<|python_start|>": "<|python_end|>", "[": ""}
NAME = re.compile(r"[A-Za-z_][\w.-]{0,255}")
PLAIN = re.compile(r"[\w ,.:=-]+")  # characters that nothing depends on
CONSTANTS = {"true": True, "false": False, "null": None}
BRACKETS = {")": "(", "]": "[", "}": "{"}


class Pythonic(ToolCallParser):
    marks = ("```tool_code", "<|python_start|>")
    first_marks = ("[",)
    special_tokens = ("<|python_start|>", "<|python_end|>")

    def region(self, mark: str) -> Region:
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
    when its parenthesis is closed.
    """

    def __init__(self, calls: Calls, names: frozenset[str], closing: str) -> None:
        super().__init__(calls)
        self._names = names
        self._closing = closing
        self._listed = False
        self._call: list[str] = []  # as far as it was read
        self._name = ""
        self._open: list[str] = []  # brackets
        self._quote = ""  # of the string that is being read
        self._escaped = False

    def begin(self, text: str, at: int) -> int:
        if text[at].isspace():
            return at + 1
        self._listed = text[at] == "["
        if not self._listed and not self._closing:
            return self.refuse(at)
        self.state = self._read_name
        return at + self._listed

    def _read_name(self, text: str, at: int) -> int:
        if text[at].isspace():
            return at + 1
        found = NAME.match(text, at)
        if found is None or found.end() - at > 255:
            return self.refuse(at)
        if found.end() == len(text):
            return at
        if text[found.end()] != "(" or found.group() not in self._names:
            return self.refuse(at)
        self._name, self._call, self._open = found.group(), [], []
        self.state = self._read_call
        return found.end()

    def _read_call(self, text: str, at: int) -> int:
        if plain := PLAIN.match(text, at):
            self._call.append(plain.group())
            return plain.end()
        character = text[at]
        self._call.append(character)
        if self._escaped:
            self._escaped = False
        elif self._quote:
            self._escaped = character == "\\"
            if character == self._quote:
                self._quote = ""
        elif character in "\"'":
            self._quote = character
        elif character in "([{":
            self._open.append(character)
        elif character in ")]}":
            if self._open.pop() != BRACKETS[character]:
                return self.refuse(at)
            if not self._open:
                return self._complete(at)
        return at + 1

    def _complete(self, at: int) -> int:
        arguments = read_arguments("f" + "".join(self._call))
        if arguments is None:
            return self.refuse(at)
        self.calls.start(self._name)
        self.calls.arguments(arguments)
        self.calls.end()
        self.state = self._between
        return at + 1

    def _between(self, text: str, at: int) -> int:
        if text[at].isspace():
            return at + 1
        if self._listed and text[at] in ",]":
            if text[at] == "]" and not self._closing:
                return self.end(at + 1)
            self.state = self._read_name if text[at] == "," else self._behind
            return at + 1
        if self._listed:
            return self.refuse(at)
        self.state = self._behind if self._closing.startswith(text[at]) else self._read_name
        return at

    def _behind(self, text: str, at: int) -> int:
        if text[at].isspace():
            return at + 1
        if text.startswith(self._closing, at):
            return self.end(at + len(self._closing))
        return at if begun(text, (self._closing,)) == len(text) - at else self.end(at)


def read_arguments(call: str) -> str | None:
    """The arguments of a call with literals by name, as JSON; None when it is another call."""
    try:
        found = ast.parse(call, mode="eval").body
        if not isinstance(found, ast.Call) or found.args or any(k.arg is None for k in found.keywords):
            return None
        text = json.dumps({k.arg: literal(k.value) for k in found.keywords}, ensure_ascii=False)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return text if encodes(text) else None


def literal(node: ast.expr) -> Any:
    """Its value. The constants of JSON count as those of Python. Raises ValueError for what is no literal."""
    if isinstance(node, ast.Name) and node.id in CONSTANTS:
        return CONSTANTS[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [literal(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        return {_key(k): literal(v) for k, v in zip(node.keys, node.values, strict=True)}
    return ast.literal_eval(node)


def _key(node: ast.expr | None) -> str:
    key = literal(node) if node is not None else None
    if not isinstance(key, str):
        raise ValueError("a key that is no string")
    return key
