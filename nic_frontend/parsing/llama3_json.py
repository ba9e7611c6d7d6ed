"""Llama 3: {"name": ..., "parameters": {...}} as the whole answer, several with semicolons between them, or
behind <|python_tag|>. Without the tag any JSON may look so; there the name must be a tool's.
"""

from __future__ import annotations

from nic_frontend.grammar.calls import Function, Mark, call_object
from nic_frontend.grammar.expression import Expression, literal, optional, repeated, sequence
from nic_frontend.parsing.region import Objects, Region
from nic_frontend.parsing.tool_call_parser import ToolCallParser


class Llama3Json(ToolCallParser):
    marks = ("<|python_tag|>",)
    first_marks = ("{",)
    special_tokens = marks

    def region(self, mark: str) -> Region:
        tagged = mark in self.marks
        return Objects(self.calls, lambda name: tagged or name in self.names, strict=not tagged)

    @classmethod
    def language(cls, functions: list[Function], many: bool, mark: Mark) -> Expression:
        call = call_object(functions, "parameters")
        more = sequence(literal(";"), optional(literal(" ")), call)
        return sequence(call, repeated(more)) if many else call
