"""The part of an answer behind a mark, in which calls are expected."""

from __future__ import annotations

import re
from collections.abc import Callable

from nic_frontend.parsing.call_object import CallObject
from nic_frontend.parsing.delta import Calls

State = Callable[[str, int], int]
BLANK = re.compile(r"[\s\ufeff]*")
BETWEEN_CALLS = ",;"
STRAY = "[]}"  # brackets that models write once too often, or around some of a block's calls
LEFT_OUT = BETWEEN_CALLS + STRAY + " \t\r\n"  # of the text between calls


class Region:
    """`feed` it text until it is `done`, or `bad`. What is `unclaimed` then, read since its last call ended,
    is content. A call is open while `in_call`; while `in_tail` it is complete, and the mark that closes it
    may follow. `closing` is the mark that is still to come behind the calls; None: there were no calls.

    A subclass has states: functions that take the text and a position and return the position up to which
    they read it. One that neither reads nor changes the state waits for more text.
    """

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.done = False
        self.bad = False
        self.in_call = False
        self.in_tail = False
        self.closing: str | None = None
        self._is_claimed = False  # what was read up to here
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
            if self.in_call or was_in_call or self.calls.n > n_calls or self._is_claimed:
                self._unclaimed, self._is_claimed = [], False
            else:
                self._unclaimed.append(text[before:at])
            if at == before and self.state == state:
                break
        return at

    def cut(self, rest: str) -> str:
        """The answer has ended, with a rest that was not read. What of all this is no part of a call."""
        return self.unclaimed + rest

    def refuse(self, at: int) -> int:
        self.bad = True
        return at

    def claim(self, at: int) -> int:
        """All that was read belongs to the region."""
        self._is_claimed = True
        return at

    def end(self, at: int) -> int:
        """There are no more calls, nor anything that closes them."""
        self.closing = ""
        return self.leave(self.claim(at))

    def leave(self, at: int) -> int:
        """What stands behind the calls does not."""
        self.done = True
        self.in_call = self.in_tail = False
        return at

    def behind_closing(self, text: str, at: int) -> int:
        """Ends the region behind the closing mark, or here, unless the mark may begin here."""
        assert self.closing
        if text.startswith(self.closing, at):
            return self.end(at + len(self.closing))
        return at if self.closing.startswith(text[at:]) else self.leave(at)


class Objects(Region):
    """Calls as JSON objects, one behind another or in an array. An object with other keys than a call's is
    none if `strict`.

    Where a mark closes them, other text may stand around them up to there, and arguments that are no JSON go
    on to it.
    """

    def __init__(
        self, calls: Calls, accepts: Callable[[str], bool], *, mark: str = "", strict: bool = False
    ) -> None:
        super().__init__(calls)
        self._accepts = accepts
        self._mark = mark
        self._strict = strict
        self._listed = False
        self._object = CallObject(calls, accepts, strict)

    def begin(self, text: str, at: int) -> int:
        if (end := behind_blank(text, at)) > at:
            return end
        self._listed = text[at] == "["
        self.state = self._read_object
        return at + self._listed

    def cut(self, rest: str) -> str:
        if not self.in_call:
            return super().cut(rest)
        self._object.cut()
        self.calls.arguments(rest)
        return self._object.aside()

    def _read_object(self, text: str, at: int) -> int:
        found = self._object
        at = found.feed(text, at)
        self.in_call = found.started
        if found.done or (found.bad and found.started):
            self._ended()
        elif found.broken:
            self.state = self._broken
        elif found.bad:
            return self.refuse(at)
        return at

    def _ended(self) -> None:
        """A call is complete, and what else may be in its object."""
        self.calls.text(self._object.aside())
        self.in_call = False
        self.in_tail = bool(self._mark)
        self.closing = self._mark
        self.state = self._between

    def _between(self, text: str, at: int) -> int:
        if (end := behind_blank(text, at)) > at:
            return end
        if text[at] == "{":
            self._object = CallObject(self.calls, self._accepts, self._strict)
            self.state = self._read_object
            return at
        if text[at] in BETWEEN_CALLS:
            self.in_tail = False
            return at + 1
        if self._listed and text[at] == "]":
            self._listed = False
            return self.claim(at + 1) if self._mark else self.end(at + 1)
        if self._mark and text[at] in STRAY:
            return at + 1
        return self.behind_closing(text, at) if self._mark else self.leave(at)

    def _broken(self, text: str, at: int) -> int:
        """Arguments that are no JSON, of which the client has seen a part."""
        end = text.find(self._mark, at) if self._mark else -1
        if end < 0:
            end = max(at, len(text) - begun(text, (self._mark,)))
            self.calls.arguments(text[at:end])
            return end
        self.calls.arguments(text[at:end])
        self.calls.text(self._object.aside())
        return self.end(end + len(self._mark))


def behind_blank(text: str, at: int) -> int:
    """The first position from `at` on that holds none of the spaces that there are."""
    found = BLANK.match(text, at)
    return found.end() if found else at


def begun(text: str, marks: tuple[str, ...]) -> int:
    """How many characters at the end are the beginning of a mark."""
    longest = min(max(map(len, marks), default=0) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if any(mark.startswith(text[-n:]) for mark in marks)), 0)
