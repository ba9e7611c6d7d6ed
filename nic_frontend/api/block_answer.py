"""An answer of one choice as a sequence of blocks: what was thought, said and called, one after another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nic_frontend.api.answer import KEEP_ALIVE, Control, Events, Shown, Usage
from nic_frontend.api.logprobs import Words
from nic_frontend.api.parts import Part, Parts
from nic_frontend.errors import ApiError
from nic_frontend.parsing.answer_splitter import AnswerSplitter
from nic_frontend.parsing.delta import CallStart, Delta
from nic_frontend.ring.request import Request
from nic_frontend.text.generation import Ending


class BlockAnswer:
    """A subclass says how a block is opened, continued and closed, as server-sent events, and what is around
    them.
    """

    keep_alive = KEEP_ALIVE

    def __init__(self, splitter: AnswerSplitter) -> None:
        self.splitter = splitter
        self.parts = Parts()  # the last one is open while the answer is streamed
        self.ending: Ending | None = None
        self._done = False  # the last block was closed
        self.requests: list[Request] = []
        self._control: Control

    @property
    def may_end_early(self) -> bool:
        return self.splitter.may_end_early

    def begin(self, requests: list[Request], control: Control) -> None:
        self.requests = list(requests)
        self._control = control

    def opening(self) -> Events:
        raise NotImplementedError

    def opened(self, part: Part) -> str:
        raise NotImplementedError

    def continued(self, part: Part, text: str) -> str:
        raise NotImplementedError

    def closed(self, part: Part) -> Events:
        raise NotImplementedError

    def closing(self, usage: Usage) -> Events:
        raise NotImplementedError

    def failed(self, error: ApiError) -> str:
        raise NotImplementedError

    def whole(self, usage: Usage) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def finish_reason(self) -> str:
        """As OpenAI names it in chats."""
        assert self.ending is not None
        calls = self.splitter.called and self.ending.finish_reason == "stop"
        return "tool_calls" if calls else self.ending.finish_reason

    def events(self, shown: Shown) -> Events:
        events = [event for delta in self._split(shown) for event in self._shown(delta)]
        if self.ending is not None and self.parts.listed and not self._done:
            events += self.closed(self.parts.listed[-1])
            self._done = True
        return events

    def add(self, shown: Shown) -> None:
        for delta in self._split(shown):
            self.parts.add([delta])
            self.added(delta)

    def added(self, delta: Delta) -> None:
        """A delta belongs to the last part now."""

    def told(self, token: int, words: Words) -> None:
        """What is known of the token whose text is looked at next."""

    def _split(self, shown: Shown) -> Iterator[Delta]:
        _, pieces, tokens, ending, n_tokens, words = shown
        if self.ending is not None:
            return
        first = n_tokens - len(tokens) + 1
        for n, piece in enumerate(pieces, first):
            if words is not None and n - first < len(tokens):
                self.told(tokens[n - first], words[n - first : n - first + 1])
            yield from self.splitter.feed(piece)
            if self.splitter.complete:
                self.ending = Ending("stop")
                self._control.end(0, min(n, n_tokens))
                return
            if self.splitter.exhausted and n < n_tokens + (ending is None):
                self._control.conclude(0, n)
                return
        if ending is not None:
            self.ending = ending
            yield from self.splitter.finish()

    def _shown(self, delta: Delta) -> Events:
        before = self.parts.listed[-1] if self.parts.listed else None
        self.parts.add([delta])
        self.added(delta)
        part = self.parts.listed[-1]
        events: Events = []
        if part is not before:
            events = [*(self.closed(before) if before is not None else ()), self.opened(part)]
        if not isinstance(delta, CallStart):
            events.append(self.continued(part, delta.text))
        return events
