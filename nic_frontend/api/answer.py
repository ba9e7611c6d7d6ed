"""An answer as an endpoint gives it: what every form of it has to do, and how JSON and tokens are written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from json.encoder import encode_basestring
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nic_frontend.errors import ApiError
from nic_frontend.ring.request import Request
from nic_frontend.text.generation import Ending

# Ends of lines to many readers of lines (httpx, str.splitlines), and none in server-sent events.
LINE_ENDS = [(character, f"\\u{ord(character):04x}") for character in "\x85\u2028\u2029"]
KEEP_ALIVE = ": keep-alive\n\n"  # a comment, which says nothing (HTML standard, "Server-sent events")
NOTHING = "null"  # in the place of log-probabilities that nobody asked for


class Shown(NamedTuple):
    """What an arrival shows of its choice."""

    choice: int
    pieces: list[str]  # the text of each token
    tokens: list[int]  # one for each piece, but for a last piece that ends without one
    ending: Ending | None  # if that was the last
    n_tokens: int  # of the choice up to here
    logprobs: NDArray[np.uint64] | None = None  # [tokens][words], where they are wanted, of what was drawn


@dataclass(frozen=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int  # of the prompts
    reasoning_tokens: int | None = None  # of the completion; None where nobody looks for reasoning

    def body(self) -> dict[str, Any]:
        body = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }
        if self.reasoning_tokens is not None:
            body["completion_tokens_details"] = {"reasoning_tokens": self.reasoning_tokens}
        return body


class Control(Protocol):
    """What an answer may do to the call that it answers."""

    def end(self, index: int, n_tokens: int) -> None:
        """A choice's answer is complete after so many of its tokens."""
        ...

    def conclude(self, index: int, n_tokens: int) -> None:
        """A choice has thought enough after so many of its tokens."""
        ...


Events = list[str | Iterator[str]]  # one behind the other; long ones are made in pieces, as they are sent


class Answer(Protocol):
    """One call's answer in the form of one endpoint, either as a stream of events or as a whole."""

    keep_alive: str  # what a stream sends that would be silent for too long

    @property
    def may_end_early(self) -> bool:
        """It may end a choice before the model does, so each token counts that it sees too late."""
        ...

    def begin(self, requests: list[Request], control: Control) -> None:
        """The call's choices were submitted."""
        ...

    def opening(self) -> Events:
        """The events before the first token."""
        ...

    def events(self, shown: Shown) -> Events:
        """The events of an arrival."""
        ...

    def closing(self, usage: Usage) -> Events:
        """The events behind the last token."""
        ...

    def failed(self, error: ApiError) -> str:
        """The events of a stream that ends with an error."""
        ...

    def add(self, shown: Shown) -> None:
        """An arrival, for `whole`."""
        ...

    def whole(self, usage: Usage) -> dict[str, Any]:
        """The answer as respond_json takes it."""
        ...


def quoted(text: str) -> str:
    """A string as JSON. What is not ASCII stays as it is, but for ends of lines."""
    literal = encode_basestring(text)
    if not literal.isascii():
        for character, escape in LINE_ENDS:  # much faster than a translation, which looks each character up
            literal = literal.replace(character, escape)
    return literal


def written(tokens: list[int]) -> str:
    return f"[{','.join(map(str, tokens))}]"


compact = partial(json.dumps, separators=(",", ":"))
