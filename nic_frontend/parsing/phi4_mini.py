"""Phi-4-mini: <|tool_call|>[{"name": ..., "arguments": {...}}]<|/tool_call|>, or functools[...]."""

from __future__ import annotations

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
