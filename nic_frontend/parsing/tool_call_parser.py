"""Finds calls of tools in an answer's text. Each way of writing calls is a subclass in a file of its own.

What is found depends on the text alone, never on how it was cut into pieces: every decision is made at a
character. So a stream and a whole answer are the same.
"""

from __future__ import annotations

from typing import ClassVar

from nic_frontend.grammar.calls import Function, Mark
from nic_frontend.grammar.expression import Expression
from nic_frontend.parsing.delta import Calls, Delta
from nic_frontend.parsing.region import LEFT_OUT, Region, begun


class ToolCallParser:
    """`feed` it the answer's text, and `finish` at its end.

    Text up to a call is content. So is what looked like a call and is none, and what follows a call. What is
    not shown is space around calls, and between them what separates them (`LEFT_OUT`).

    `marks` begin calls anywhere, `first_marks` only where no other text came before, and `block_marks` behind
    other text where calls were found and the mark that closes them is still to come. The latter two are
    single characters, which the region reads again.
    """

    marks: ClassVar[tuple[str, ...]] = ()
    first_marks: ClassVar[tuple[str, ...]] = ()
    block_marks: ClassVar[tuple[str, ...]] = ()
    special_tokens: ClassVar[tuple[str, ...]] = ()  # that must be shown for the parser to see them
    short_ids: ClassVar[bool] = False

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.calls = Calls(self.short_ids)
        self._pending = ""
        self._spaces: list[str] = []  # in front of that
        self._region: Region | None = None
        self._fresh = True  # there was no content yet
        self._expect("")

    @property
    def between_calls(self) -> bool:
        """No call is open now."""
        return self._region is None or not (self._region.in_call or self._region.in_tail)

    def region(self, mark: str) -> Region:
        """What reads the text that `mark` began."""
        raise NotImplementedError

    @classmethod
    def language(cls, functions: list[Function], many: bool, mark: Mark) -> Expression:
        """How the model writes a call, or any number of calls. Raises GrammarRefused."""
        raise NotImplementedError

    def feed(self, text: str) -> list[Delta]:
        if self._region is None and text.isspace() and (not self._pending or self._pending.isspace()):
            self._spaces += (self._pending, text)  # however many there are, they are looked at once
            self._pending = ""
            return []
        self._pending = "".join((*self._spaces, self._pending, text))
        self._spaces = []
        while self._pending and (self._read_region() if self._region else self._read_content()):
            pass
        return self.calls.take()

    def finish(self) -> list[Delta]:
        """The answer has ended, maybe in the middle of a call."""
        rest, closing = "".join((*self._spaces, self._pending)), self.closing
        if self._region is not None:
            rest = self._region.cut(rest)
            closing = self._region.closing or closing
        if not self.calls.n or not closing.startswith(rest.strip(LEFT_OUT)):
            self._content(rest)
        self._pending, self._spaces, self._region = "", [], None
        return self.calls.take()

    def _expect(self, closing: str) -> None:
        """What is looked for from now on. `closing`: the mark of the block that is open, if one is."""
        self.closing = closing
        self._marks = (*self.marks, closing, *self.block_marks) if closing else self.marks
        self._firsts = frozenset(mark[0] for mark in self._marks)

    def _content(self, text: str) -> None:
        if text:
            self._fresh = False
            self.calls.text(text)

    def _show(self, end: int) -> None:
        """Content up to there, but for the spaces before: they are not shown if a call's mark follows."""
        shown = len(self._pending[:end].rstrip())
        self._content(self._pending[:shown])
        self._pending = self._pending[shown:]

    def _read_content(self) -> bool:
        """Shows what is content for sure; whether a call may begin now."""
        text = self._pending
        if not self._fresh and self._firsts.isdisjoint(text):
            self._show(len(text))
            return False
        begins = [(at, mark) for mark in self._marks if (at := text.find(mark)) >= 0]
        start = len(text) - len(text.lstrip())
        if self._fresh and text[start : start + 1] in self.first_marks:
            begins.append((start, text[start]))
        if not begins:
            self._show(len(text) - begun(text, self._marks))
            return False
        at, mark = min(begins, key=lambda begin: (begin[0], -len(begin[1])))
        rest = text[at:]
        if any(other != rest and other.startswith(rest) for other in self._marks):
            self._show(at)  # it may be the beginning of a longer one
            return False
        self._found(at, mark)
        return True

    def _found(self, at: int, mark: str) -> None:
        self._show(at)
        space = len(self._pending) - len(self._pending.lstrip())
        if mark == self.closing:
            self._pending = self._pending[space + len(mark) :]
            self._expect("")
            return
        inside = space if mark in self.first_marks + self.block_marks else space + len(mark)
        self._region = self.region(mark)
        self._region.open_with(self._pending[:inside])
        self._pending = self._pending[inside:]

    def _read_region(self) -> bool:
        """Whether there may be more to read."""
        region = self._region
        assert region is not None
        at = region.feed(self._pending)
        self._pending = self._pending[at:]
        if not (region.bad or region.done):
            return False
        if region.bad:
            self._content(region.unclaimed)
        else:
            self._pending = region.unclaimed + self._pending
        if region.closing is not None:
            self._expect(region.closing)
        self._region = None
        return True
