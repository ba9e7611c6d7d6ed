"""Splits the text of models that think first, between marks, and then answer and call tools."""

from __future__ import annotations

from nic_frontend.parsing.answer_splitter import AnswerSplitter
from nic_frontend.parsing.delta import Calls, Delta, Text
from nic_frontend.parsing.reasoning import ReasoningParser
from nic_frontend.parsing.tool_call_parser import ToolCallParser


class Splitter(AnswerSplitter):
    """With neither parser, all is text."""

    def __init__(
        self,
        reasoning: ReasoningParser | None,
        tools: ToolCallParser | None,
        one_call: bool = False,
        budget: int | None = None,
    ) -> None:
        super().__init__(one_call, budget)
        self._reasoning = reasoning
        self._tools = tools
        self._undecided = 0  # tokens that may belong to the opening mark

    @property
    def finds_reasoning(self) -> bool:
        return self._reasoning is not None

    @property
    def thinking(self) -> bool:
        return self._reasoning is not None and self._reasoning.inside

    @property
    def calls(self) -> Calls | None:
        return self._tools.calls if self._tools is not None else None

    @property
    def between_calls(self) -> bool:
        return self._tools is None or self._tools.between_calls

    def feed(self, text: str) -> list[Delta]:
        if self._reasoning is None or self._reasoning.over:
            return self._read([Text(text)])
        thinking = self._reasoning.inside
        found = self._reasoning.feed(text)
        if self._reasoning.undecided:
            self._undecided += 1
        else:
            if thinking or self._reasoning.inside:
                self.reasoning_tokens += 1 + self._undecided
            self._undecided = 0
        return self._read(found)

    def finish(self) -> list[Delta]:
        found = self._read(self._reasoning.finish() if self._reasoning is not None else [])
        return self._limited(found + (self._tools.finish() if self._tools is not None else []))

    def _read(self, found: list[Delta]) -> list[Delta]:
        """What the parser of calls makes of the text among `found`."""
        tools = self._tools
        if tools is None:
            return [delta for delta in found if not isinstance(delta, Text) or delta.text]
        deltas: list[Delta] = []
        for delta in found:
            deltas += tools.feed(delta.text) if isinstance(delta, Text) else [delta]
        return self._limited(deltas)
