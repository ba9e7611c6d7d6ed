"""The part of an answer behind a mark, in which calls are expected."""

from __future__ import annotations

from collections.abc import Callable

from nic_frontend.parsing.call_object import CallObject
from nic_frontend.parsing.delta import Calls
from nic_frontend.parsing.json_scanner import behind_space

State = Callable[[str, int], int]


class Region:
    """`feed` it text until it is `done`, or `bad`: then what is `unclaimed`, read since its last call ended,
    is content. A call is open or its tail is being read while `in_call`.

    A subclass has states: functions that take the text and a position and return the position up to which
    they read it. One that neither reads nor changes the state waits for more text.
    """

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.done = False
        self.bad = False
        self.in_call = False
        self._unclaimed: list[str] = []
        self.state: State = self.begin

    def begin(self, text: str, at: int) -> int:
        raise NotImplementedError

    @property
    def unclaimed(self) -> str:
        return "".join(self._unclaimed)

    def open_with(self, text: str) -> None:
        """What stood before the region and is a part of it."""
        self._unclaimed = [text]

    def feed(self, text: str) -> int:
        """The number of characters that were read. What was not comes again, with more behind it."""
        at = 0
        while at < len(text) and not (self.done or self.bad):
            before, state = at, self.state
            was_in_call, n_calls = self.in_call, self.calls.n
            at = self.state(text, at)
            claimed = self.in_call or was_in_call or self.calls.n > n_calls
            if claimed:
                self._unclaimed = []
            else:
                self._unclaimed.append(text[before:at])
            if at == before and self.state == state:
                break
        return at

    def refuse(self, at: int) -> int:
        self.bad = True
        return at

    def end(self, at: int) -> int:
        self.done = True
        self.in_call = False
        return at


class Objects(Region):
    """Calls as JSON objects: one, or several with `separator` between them, or an array of them. An object
    with other keys than a call's is none if `strict`.

    What stands behind them up to `closing` belongs to them, where there is such a mark; `opening` ends it,
    too.
    """

    def __init__(
        self,
        calls: Calls,
        accepts: Callable[[str], bool],
        *,
        separator: str = "",
        opening: str = "",
        closing: str = "",
        strict: bool = False,
    ) -> None:
        super().__init__(calls)
        self._accepts = accepts
        self._listed = False
        self._separator = separator
        self._opening = opening
        self._closing = closing
        self._strict = strict
        self._object = CallObject(calls, accepts, strict)

    def begin(self, text: str, at: int) -> int:
        if (end := behind_space(text, at)) > at:
            return end
        self._listed = text[at] == "["
        if self._listed:
            self._separator = ","
        self.state = self._read_object
        return at + self._listed

    def _read_object(self, text: str, at: int) -> int:
        found = self._object
        at = found.feed(text, at)
        self.in_call = found.started
        if found.done and self._separator:
            self.in_call = False
            self.state = self._between
        elif found.done or (found.bad and found.started):
            return self._last(at)
        elif found.broken:
            self.state = self._broken
        elif found.bad:
            return self.refuse(at)
        return at

    def _last(self, at: int) -> int:
        """There are no more objects. What stands behind them up to the closing mark is not shown."""
        if not self._closing:
            return self.end(at)
        self.in_call = True
        self.state = self._tail
        return at

    def _between(self, text: str, at: int) -> int:
        if (end := behind_space(text, at)) > at:
            return end
        if text[at] == self._separator or (not self._listed and text[at] == "{"):
            self._object = CallObject(self.calls, self._accepts, self._strict)
            self.state = self._read_object
            return at + (text[at] == self._separator)
        if not self._listed:
            return self.end(at)
        if text[at] != "]":
            return self.refuse(at)
        return self._last(at + 1)

    def _tail(self, text: str, at: int) -> int:
        closing, opening = text.find(self._closing, at), text.find(self._opening, at)
        if opening >= 0 and not 0 <= closing < opening:
            return self.end(opening)
        return self.end(closing + len(self._closing)) if closing >= 0 else self._sure(text, at)

    def _broken(self, text: str, at: int) -> int:
        """Arguments that are no JSON, of which the client has seen a part: they go on to the closing mark."""
        closing = text.find(self._closing, at) if self._closing else -1
        end = closing if closing >= 0 else self._sure(text, at)
        self.calls.arguments(text[at:end])
        return self.end(closing + len(self._closing)) if closing >= 0 else end

    def _sure(self, text: str, at: int) -> int:
        """The position behind which one of the two marks may begin."""
        return max(at, len(text) - begun(text, (self._opening, self._closing)))


def begun(text: str, marks: tuple[str, ...]) -> int:
    """How many characters at the end are the beginning of a mark."""
    longest = min(max(map(len, marks), default=0) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if any(mark.startswith(text[-n:]) for mark in marks)), 0)
