"""Phi-4-mini: <|tool_call|>[{"name": ..., "arguments": {...}}]<|/tool_call|>, or functools[...]."""

from __future__ import annotations

from nic_frontend.grammar.calls import Function, Mark, call_list
from nic_frontend.grammar.expression import Expression, literal, sequence
from nic_frontend.parsing.region import Objects, Region
from nic_frontend.parsing.tool_call_parser import ToolCallParser

TAG, END = "<|tool_call|>", "<|/tool_call|>"


class Phi4Mini(ToolCallParser):
    marks = (TAG, "functools")
    block_marks = ("{",)
    special_tokens = (TAG, END)

    def region(self, mark: str) -> Region:
        begins = mark in self.marks
        closing = "" if mark == "functools" else END
        return Objects(self.calls, lambda name: begins or name in self.names, mark=closing, strict=not begins)

    @classmethod
    def language(cls, functions: list[Function], many: bool, mark: Mark) -> Expression:
        opening, closing = (literal(mark(text)) for text in cls.special_tokens)
        return sequence(opening, call_list(functions, "arguments", many), closing)
