"""Phi-4-mini: <|tool_call|>[{"name": ..., "arguments": {...}}]<|/tool_call|>, or functools[...]."""

from __future__ import annotations

from nic_frontend.grammar.calls import Function, Mark, call_list
from nic_frontend.grammar.expression import Expression, literal, sequence
from nic_frontend.parsing.region import Objects, Region
from nic_frontend.parsing.tool_call_parser import ToolCallParser

TAG = "<|tool_call|>"


class Phi4Mini(ToolCallParser):
    marks = (TAG, "functools")
    special_tokens = (TAG, "<|/tool_call|>")

    def region(self, mark: str) -> Region:
        closing = "<|/tool_call|>" if mark == TAG else ""
        opening = TAG if mark == TAG else ""
        return Objects(self.calls, lambda name: True, opening=opening, closing=closing)

    @classmethod
    def language(cls, functions: list[Function], many: bool, mark: Mark) -> Expression:
        opening, closing = (literal(mark(text)) for text in cls.special_tokens)
        return sequence(opening, call_list(functions, "arguments", many), closing)
