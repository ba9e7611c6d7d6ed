"""Splits one choice's text into what it is made of: reasoning first, then text and calls of tools."""

from __future__ import annotations

from dataclasses import dataclass, field

from nic_frontend.parsing.delta import CallStart, Delta, Reasoning, Text
from nic_frontend.parsing.reasoning import ReasoningParser
from nic_frontend.parsing.tool_call_parser import ToolCallParser


@dataclass
class Splitter:
    """`feed` it the text of each token, and `finish` at the end. `reasoning_tokens` counts those with which
    the model was thinking, the marks among them.
    """

    reasoning: ReasoningParser | None
    tools: ToolCallParser | None
    one_call: bool = False  # the answer ends behind its first call
    budget: int | None = None  # of tokens to think
    reasoning_tokens: int = 0
    _undecided: int = field(default=0, init=False)  # tokens that may belong to the opening mark
    _called: bool = field(default=False, init=False)

    @property
    def complete(self) -> bool:
        """One call was asked for, and is there."""
        if not self.one_call or self.tools is None:
            return False
        return self.n_calls > 1 or (self.n_calls == 1 and self.tools.between_calls)

    @property
    def exhausted(self) -> bool:
        """The model still thinks, and has had all its budget. True once: then it is made to conclude."""
        if self.budget is None or self.reasoning is None or not self.reasoning.inside:
            return False
        if self.reasoning_tokens < self.budget:
            return False
        self.budget = None
        return True

    @property
    def n_calls(self) -> int:
        return self.tools.calls.n if self.tools is not None else 0

    @property
    def called(self) -> bool:
        """There are calls, and the last one that is shown has all its arguments: the client may run it."""
        complete = self.tools.calls.complete if self.tools is not None else []
        return bool(complete) and complete[0 if self.one_call else -1]

    def feed(self, text: str) -> list[Delta]:
        if self.reasoning is None or self.reasoning.over:
            return self._read([Text(text)])
        thinking = self.reasoning.inside
        found = self.reasoning.feed(text)
        if self.reasoning.undecided:
            self._undecided += 1
        else:
            if thinking or self.reasoning.inside:
                self.reasoning_tokens += 1 + self._undecided
            self._undecided = 0
        return self._read(found)

    def finish(self) -> list[Delta]:
        found = self._read(self.reasoning.finish() if self.reasoning is not None else [])
        return self._limited(found + (self.tools.finish() if self.tools is not None else []))

    def _read(self, found: list[Delta]) -> list[Delta]:
        """What `tools` makes of the text among `found`."""
        tools = self.tools
        if tools is None:
            return [delta for delta in found if not isinstance(delta, Text) or delta.text]
        deltas: list[Delta] = []
        for delta in found:
            deltas += tools.feed(delta.text) if isinstance(delta, Text) else [delta]
        return self._limited(deltas)

    def _limited(self, deltas: list[Delta]) -> list[Delta]:
        """Without what comes behind the first call, where only one is asked for."""
        if not self.one_call:
            return deltas
        shown: list[Delta] = []
        for delta in deltas:
            self._called = self._called or isinstance(delta, CallStart)
            if not self._called or (not isinstance(delta, Text | Reasoning) and delta.index == 0):
                shown.append(delta)
        return shown
