"""Hermes, Qwen2.5 and Qwen3: <tool_call>{"name": ..., "arguments": {...}}</tool_call>."""

from __future__ import annotations

from nic_frontend.parsing.region import Objects, Region
from nic_frontend.parsing.tool_call_parser import ToolCallParser


class Hermes(ToolCallParser):
    marks = ("<tool_call>",)
    special_tokens = ("<tool_call>", "</tool_call>")

    def region(self, mark: str) -> Region:
        return Objects(self.calls, lambda name: True, opening=mark, closing="</tool_call>")
