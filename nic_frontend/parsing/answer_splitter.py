"""Splits one choice's text into what it is made of: thoughts, text, and calls of tools."""

from __future__ import annotations

from abc import ABC, abstractmethod

from nic_frontend.parsing.delta import Calls, CallStart, Delta, Reasoning, Text


class AnswerSplitter(ABC):
    """`feed` it the text of each token, and `finish` at the end. `reasoning_tokens` counts those with which
    the model was thinking, the marks among them.
    """

    def __init__(self, one_call: bool, budget: int | None) -> None:
        self.one_call = one_call  # the answer ends behind its first call
        self.budget = budget  # of tokens to think
        self.reasoning_tokens = 0
        self._called = False

    @abstractmethod
    def feed(self, text: str) -> list[Delta]: ...

    @abstractmethod
    def finish(self) -> list[Delta]: ...

    @property
    @abstractmethod
    def finds_reasoning(self) -> bool:
        """Thoughts are looked for."""

    @property
    @abstractmethod
    def thinking(self) -> bool:
        """The model thinks now."""

    @property
    @abstractmethod
    def calls(self) -> Calls | None:
        """Those that were found; None where nobody looks for any."""

    @property
    @abstractmethod
    def between_calls(self) -> bool:
        """No call is open now."""

    @property
    def complete(self) -> bool:
        """Nothing more is wanted: one call was asked for, and is there."""
        n = self.n_calls if self.one_call else 0
        return n > 1 or (n == 1 and self.between_calls)

    @property
    def may_end_early(self) -> bool:
        """The answer may be `complete` before the model ends it."""
        return self.one_call

    @property
    def exhausted(self) -> bool:
        """The model still thinks, and has had all its budget. True once: then it is made to conclude."""
        if self.budget is None or not self.thinking or self.reasoning_tokens < self.budget:
            return False
        self.budget = None
        return True

    @property
    def n_calls(self) -> int:
        return self.calls.n if self.calls is not None else 0

    @property
    def called(self) -> bool:
        """There are calls, and the last one that is shown has all its arguments: the client may run it."""
        complete = self.calls.complete if self.calls is not None else []
        return bool(complete) and complete[0 if self.one_call else -1]

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
