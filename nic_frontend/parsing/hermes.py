"""Hermes, Qwen2.5 and Qwen3: <tool_call>{"name": ..., "arguments": {...}}</tool_call>."""

from __future__ import annotations

from nic_frontend.grammar.calls import Function, Mark, call_object
from nic_frontend.grammar.expression import Expression, literal, optional, repeated, sequence
from nic_frontend.parsing.region import Objects, Region
from nic_frontend.parsing.tool_call_parser import ToolCallParser


class Hermes(ToolCallParser):
    marks = ("<tool_call>",)
    block_marks = ("{",)
    special_tokens = ("<tool_call>", "</tool_call>")

    def region(self, mark: str) -> Region:
        begins = mark in self.marks
        return Objects(
            self.calls, lambda name: begins or name in self.names, mark="</tool_call>", strict=not begins
        )

    @classmethod
    def language(cls, functions: list[Function], many: bool, mark: Mark) -> Expression:
        line = optional(literal("\n"))
        opening, closing = (literal(mark(text)) for text in cls.special_tokens)
        call = sequence(opening, line, call_object(functions, "arguments"), line, closing)
        return sequence(call, repeated(sequence(line, call))) if many else call
