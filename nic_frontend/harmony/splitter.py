"""Splits an answer of a gpt-oss model: thoughts are in the channel analysis, calls have a recipient, all else
is text. Models write a message wrongly now and then, so whatever stands anywhere is read as something.

What is found depends on the text alone, never on how it was cut into pieces.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from nic_frontend.harmony.marks import (
    ANALYSIS,
    ASSISTANT,
    CALL,
    CHANNEL,
    ENDS,
    FUNCTIONS,
    MARKS,
    MESSAGE,
    RETURN,
    START,
)
from nic_frontend.parsing.answer_splitter import AnswerSplitter
from nic_frontend.parsing.delta import Calls, Delta, Reasoning, Text
from nic_frontend.parsing.json_scanner import JsonScanner
from nic_frontend.parsing.region import begun

MOST_HEADER = 256  # characters; more are no header
APART = "\n\n"  # between two messages that become one text
TURN_ENDS = (CALL, RETURN)
NEXT = (START, *ENDS, CHANNEL)  # where a message is over, or another begins without its beginning
_CHANNEL = r"<\|channel\|>\s*(?P<{0}>[A-Za-z_]*)"
_RECIPIENT = r"to=(?P<{0}>[\w.-]*)"
HEADER = re.compile(
    rf"\s*(?:{ASSISTANT}(?![^\s<]))?\s*(?:{_RECIPIENT.format('before')})?\s*(?:{_CHANNEL.format('channel')})?"
    rf"\s*(?:{_RECIPIENT.format('behind')})?\s*(?:{_CHANNEL.format('again')})?"
    r"\s*(?:<\|constrain\|>\s*[\w.+/-]*)?\s*"
)


class Kind(enum.Enum):
    TEXT = "text"
    THOUGHT = "thought"
    CALL = "call"


class Header(NamedTuple):
    channel: str
    recipient: str
    rest: str  # what is no part of a header


def header_of(text: str) -> Header:
    found = HEADER.match(text)
    assert found is not None  # all of it may be missing
    channel = found["again"] or found["channel"] or ""
    return Header(channel, found["behind"] or found["before"] or "", text[found.end() :])


class HarmonySplitter(AnswerSplitter):
    """`names` are those of the tools that may be called. `within`: the prompt ends within a final message,
    else where the assistant's header begins.
    """

    def __init__(self, names: frozenset[str], one_call: bool, budget: int | None, *, within: bool) -> None:
        super().__init__(one_call, budget)
        self._names = names
        self._found = Calls()
        self._pending = ""
        self._kind = Kind.TEXT
        self._scanner = JsonScanner()  # of a call's arguments
        self._behind: list[str] = []  # arguments
        self._shown = {Kind.TEXT: "", Kind.THOUGHT: ""}  # the last character of each
        self._is_over = False  # the turn
        self._is_new = False  # nothing of this message was shown yet
        self._state = self._content if within else self._header

    @property
    def finds_reasoning(self) -> bool:
        return True

    @property
    def thinking(self) -> bool:
        return self._kind is Kind.THOUGHT

    @property
    def calls(self) -> Calls | None:
        return self._found if self._names else None

    @property
    def between_calls(self) -> bool:
        return self._kind is not Kind.CALL

    @property
    def complete(self) -> bool:
        """Also where the model has ended its turn: not every directory has these tokens among the ends."""
        return self._is_over or super().complete

    @property
    def may_end_early(self) -> bool:
        return True

    def feed(self, text: str) -> list[Delta]:
        thinking = self.thinking
        self._pending += text
        while self._pending and self._state():
            pass
        self.reasoning_tokens += thinking or self.thinking
        return self._limited(self._found.take())

    def finish(self) -> list[Delta]:
        """The answer has ended, maybe in the middle of a message."""
        rest, self._pending = self._pending, ""
        if self._state == self._content:
            self._show(rest)
            self._end()
        elif self._state == self._header:
            self._without_message(rest)
        return self._limited(self._found.take())

    # ------------------------------------------------------------- states: whether there may be more to read

    def _header(self) -> bool:
        text = self._pending
        found = [(at, mark) for mark in (MESSAGE, START, *ENDS) if (at := text.find(mark)) >= 0]
        at, mark = min(found, default=(len(text), ""))
        for end in range(1, at + 1):  # what is no header any more is not by a character, however they come
            if not _may_be_header(text[:end]):
                self._pending = text[end:]
                self._begin(header_of(text[:end]), is_message=False)
                return True
        if not mark:
            return False
        self._pending = text[at + len(mark) :]
        if mark == MESSAGE:
            self._begin(header_of(text[:at]), is_message=True)
        else:
            self._without_message(text[:at])
            self._is_over = mark in TURN_ENDS
            self._state = self._header if mark == START else self._between
        return True

    def _content(self) -> bool:
        text = self._pending
        found = [(at, mark) for mark in NEXT if (at := text.find(mark)) >= 0]
        if not found:
            sure = len(text) - begun(text, NEXT)
            self._show(text[:sure])
            self._pending = text[sure:]
            return False
        at, mark = min(found)
        self._show(text[:at])
        self._end()
        self._is_over = mark in TURN_ENDS
        self._pending = text[at:] if mark == CHANNEL else text[at + len(mark) :]
        self._state = self._between if mark in ENDS else self._header
        return True

    def _between(self) -> bool:
        text = self._pending.lstrip()
        for mark in (START, *ENDS):
            if text.startswith(mark):
                self._pending = text[len(mark) :]
                self._state = self._header if mark == START else self._between
                return True
        if any(mark.startswith(text) for mark in MARKS):
            return False
        self._state = self._header
        return True

    # ----------------------------------------------------------------------------------------- messages

    def _without_message(self, text: str) -> None:
        """A header that ends without the mark behind it: what is no header in it is the message."""
        header = header_of(text)
        if header.rest:
            self._begin(header, is_message=False)
            self._end()

    def _begin(self, header: Header, *, is_message: bool) -> None:
        """`is_message`: the header is complete, so that one word more in it is a type of content."""
        name = header.recipient.removeprefix(FUNCTIONS)
        is_call = bool(name) and (name != header.recipient or name in self._names)
        if is_call and self._names:
            self._kind = Kind.CALL
            self._found.start(name)
            self._scanner, self._behind = JsonScanner(), []
        elif header.recipient or header.channel == ANALYSIS:
            self._kind = Kind.THOUGHT  # also for tools that the model does not have here
        else:
            self._kind = Kind.TEXT
        self._is_new = True
        self._state = self._content
        if not is_message or len(header.rest.split()) > 1:
            self._show(header.rest)

    def _show(self, text: str) -> None:
        if not text:
            return
        if self._kind is Kind.CALL:
            self._argue(text)
            return
        last = self._shown[self._kind]
        if self._is_new and last and last != "\n":
            text = APART + text
        self._is_new = False
        self._shown[self._kind] = text[-1]
        self._found.deltas.append(Reasoning(text) if self._kind is Kind.THOUGHT else Text(text))

    def _argue(self, text: str) -> None:
        """A piece of a call's arguments."""
        scanner = self._scanner
        if self._is_new:
            text = text.lstrip()
            if not text:
                return
            self._is_new = False
            scanner.bad = not text.startswith("{")
        if scanner.done:
            self._behind.append(text)
            return
        at = 0 if scanner.bad else scanner.feed(text, 0)
        self._found.arguments(scanner.take())
        if scanner.done:
            self._found.end()
            self._behind.append(text[at:])
        else:
            self._found.arguments(text[at:])

    def _end(self) -> None:
        """A message is over."""
        if self._kind is Kind.CALL:
            if self._is_new:  # a call without arguments has none to give
                self._found.arguments("{}")
                self._found.end()
            elif not self._scanner.done:
                self._found.arguments(self._scanner.cut())
            behind = "".join(self._behind)
            self._kind, self._is_new = Kind.TEXT, True
            if behind.strip():
                self._show(behind)
        self._kind = Kind.TEXT


def _may_be_header(text: str) -> bool:
    """Whether more may make it one."""
    if len(text) > MOST_HEADER:
        return False
    text = text[: len(text) - begun(text, MARKS)]
    if CHANNEL in text:
        return True
    words = text.split()
    if words and ASSISTANT.startswith(words[0]):
        words = words[1:]
    return all(word.startswith("to=") or "to=".startswith(word) for word in words[:1]) and len(words) <= 2
