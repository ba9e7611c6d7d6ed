"""Splits what a model thought from what it answered: <think>...</think> and its like."""

from __future__ import annotations

from nic_frontend.parsing.delta import Delta, Reasoning, Text
from nic_frontend.parsing.region import begun


class ReasoningParser:
    """`feed` it the answer's text, and `finish` at its end. The marks around reasoning are not shown, nor is
    the space around it.

    `opened`: the prompt ends with the opening mark, or the model leaves it out. Otherwise what does not
    begin with the mark has no reasoning. `within`: the text continues a thought, also with a space.
    """

    def __init__(self, opening: str, closing: str, opened: bool, *, within: bool = False) -> None:
        self.inside = opened
        self.over = False  # what comes now is the answer, as it is
        self.opening = opening
        self.closing = closing
        self._pending = ""
        self._state = self._thoughts if within else self._begin
        self._opened = opened
        self._deltas: list[Delta] = []

    @property
    def undecided(self) -> bool:
        """Nothing has told yet whether the model thinks."""
        return self._state == self._begin and not self.inside

    def feed(self, text: str) -> list[Delta]:
        self._pending += text
        while self._pending and self._state():
            pass
        deltas, self._deltas = self._deltas, []
        return deltas

    def finish(self) -> list[Delta]:
        """The answer has ended, maybe while the model was thinking."""
        rest, self._pending = self._pending, ""
        if self.inside:
            rest = rest.rstrip() if self._state == self._thoughts else rest.strip()
        if not rest:
            return []
        return [Reasoning(rest) if self.inside else Text(rest)]

    def _begin(self) -> bool:
        """At the beginning, where the mark may stand even if it was in the prompt."""
        text = self._pending.lstrip()
        if text.startswith(self.opening):
            self.inside = True
            self._pending = text.removeprefix(self.opening)
            self._state = self._first_thought
            return True
        if self.opening.startswith(text):
            return False
        self._state = self._first_thought if self._opened else self._answer
        return True

    def _first_thought(self) -> bool:
        self._pending = self._pending.lstrip()
        self._state = self._thoughts
        if not self._pending:
            self._state = self._first_thought
        return bool(self._pending)

    def _thoughts(self) -> bool:
        text = self._pending
        at = text.find(self.closing)
        sure = at if at >= 0 else len(text) - begun(text, (self.closing,))
        shown = len(text[:sure].rstrip())
        if shown:
            self._deltas.append(Reasoning(text[:shown]))
        self._pending = text[shown:]
        if at < 0:
            return False
        self._pending = text[at + len(self.closing) :]
        self.inside = False
        self._state = self._first_word
        return True

    def _first_word(self) -> bool:
        self._pending = self._pending.lstrip()
        if self._pending:
            self._state = self._answer
        return bool(self._pending)

    def _answer(self) -> bool:
        self.over = True
        self._deltas.append(Text(self._pending))
        self._pending = ""
        return False
