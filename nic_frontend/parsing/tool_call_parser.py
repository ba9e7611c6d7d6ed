"""Finds calls of tools in an answer's text. Each way of writing calls is a subclass in a file of its own.

What is found depends on the text alone, never on how it was cut into pieces: every decision is made at a
character. So a stream and a whole answer are the same.
"""

from __future__ import annotations

from typing import ClassVar

from nic_frontend.grammar.calls import Function, Mark
from nic_frontend.grammar.expression import Expression
from nic_frontend.parsing.delta import Calls, Delta, Text
from nic_frontend.parsing.region import Region, begun

SEPARATORS = ",; \t\r\n"  # what may be left between calls when the answer ends


class ToolCallParser:
    """`feed` it the answer's text, and `finish` at its end.

    Text up to a call is content. So is what looked like a call and is none, and what follows a call, unless
    it is only space. `marks` begin calls anywhere, `first_marks` only where no other text came before.
    """

    marks: ClassVar[tuple[str, ...]] = ()
    first_marks: ClassVar[tuple[str, ...]] = ()  # single characters, which the region reads again
    special_tokens: ClassVar[tuple[str, ...]] = ()  # that must be shown for the parser to see them
    short_ids: ClassVar[bool] = False

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.calls = Calls(self.short_ids)
        self._pending = ""
        self._region: Region | None = None
        self._fresh = True  # there was no content yet
        self._firsts = frozenset(mark[0] for mark in self.marks)

    @property
    def between_calls(self) -> bool:
        """No call is open now."""
        return self._region is None or not self._region.in_call

    def region(self, mark: str) -> Region:
        """What reads the text that `mark` began."""
        raise NotImplementedError

    @classmethod
    def language(cls, functions: list[Function], many: bool, mark: Mark) -> Expression:
        """How the model writes a call, or any number of calls. Raises GrammarRefused."""
        raise NotImplementedError

    def feed(self, text: str) -> list[Delta]:
        self._pending += text
        while self._pending and (self._read_region() if self._region else self._read_content()):
            pass
        return self.calls.take()

    def finish(self) -> list[Delta]:
        """The answer has ended, maybe in the middle of a call."""
        rest = self._pending
        if self._region is not None:
            rest = "" if self._region.in_call else self._region.unclaimed + rest
        if not self.calls.n or rest.strip(SEPARATORS):
            self._content(rest)
        self._pending, self._region = "", None
        return self.calls.take()

    def _content(self, text: str) -> None:
        if text:
            self._fresh = False
            self.calls.deltas.append(Text(text))

    def _read_content(self) -> bool:
        """Shows what is content for sure; whether a call may begin now."""
        text = self._pending
        if not self._fresh and self._firsts.isdisjoint(text):
            shown = len(text.rstrip())
            self._content(text[:shown])
            self._pending = text[shown:]
            return False
        begins = [(at, mark) for mark in self.marks if (at := text.find(mark)) >= 0]
        start = len(text) - len(text.lstrip())
        if self._fresh and text[start : start + 1] in self.first_marks:
            begins.append((start, text[start]))
        if begins:
            at, mark = min(begins, key=lambda begin: (begin[0], -len(begin[1])))
            shown = len(text[:at].rstrip())
            inside = at if mark in self.first_marks else at + len(mark)
            self._content(text[:shown])
            self._region = self.region(mark)
            self._region.open_with(text[shown:inside])
            self._pending = text[inside:]
            return True
        shown = len(text) - held_back(text, self.marks)
        self._content(text[:shown])
        self._pending = text[shown:]
        return False

    def _read_region(self) -> bool:
        """Whether there may be more to read."""
        region = self._region
        assert region is not None
        at = region.feed(self._pending)
        self._pending = self._pending[at:]
        if region.bad:
            self._content(region.unclaimed)
        if region.bad or region.done:
            self._region = None
            return True
        return False


def held_back(text: str, marks: tuple[str, ...]) -> int:
    """How many characters at the end cannot be shown yet: the beginning of a mark, and the spaces before it,
    which are not shown if it is a call's.
    """
    return len(text) - len(text[: len(text) - begun(text, marks)].rstrip())
