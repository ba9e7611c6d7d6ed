"""What an answer is made of, piece by piece: text, reasoning, and calls of tools."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

ALPHANUMERIC = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    index: int  # of the call in its choice
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the call's arguments, which are JSON."""

    index: int
    text: str


Delta = Text | Reasoning | CallStart | CallArguments


def long_id() -> str:
    """As OpenAI writes it."""
    return "call_" + secrets.token_hex(12)


def short_id() -> str:
    """Nine letters and digits, which is what Mistral's templates take."""
    return "".join(secrets.choice(ALPHANUMERIC) for _ in range(9))


@dataclass
class Calls:
    """Where readers of calls write what they found. A call begins once its name is known and is a call for
    sure. `complete` has an entry for each: whether its arguments are there up to their end.
    """

    short_ids: bool = False
    complete: list[bool] = field(default_factory=list)
    deltas: list[Delta] = field(default_factory=list)

    @property
    def n(self) -> int:
        return len(self.complete)

    def text(self, text: str) -> None:
        if text:
            self.deltas.append(Text(text))

    def start(self, name: str) -> None:
        call_id = short_id() if self.short_ids else long_id()
        self.deltas.append(CallStart(self.n, call_id, name))
        self.complete.append(False)

    def arguments(self, text: str) -> None:
        """Of the call that was started last."""
        if text:
            self.deltas.append(CallArguments(self.n - 1, text))

    def end(self) -> None:
        """The arguments of the call that was started last are complete."""
        self.complete[-1] = True

    def take(self) -> list[Delta]:
        deltas, self.deltas = self.deltas, []
        return deltas
