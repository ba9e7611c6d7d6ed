"""What is kept of a response, and what there is to say where it is not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

OPEN = ("queued", "in_progress")  # the statuses of a response that is still being computed
LOST = b'{"code": "server_error", "message": "the frontend that computed this response has ended"}'


class Item(NamedTuple):
    id: str
    content: bytes  # JSON


class Bounds(NamedTuple):
    """Of all that is kept: bytes, and seconds since a response was made or continued last."""

    size: int
    age_s: float


@dataclass(frozen=True)
class Record:
    """A response as it is put into the store. `body` is a JSON object without status, error and output.
    `within_s` is how long one may take that is not complete yet.
    """

    id: str
    status: str
    body: bytes
    previous: str | None = None
    within_s: float | None = None
    inputs: list[Item] = field(default_factory=list)
    outputs: list[Item] = field(default_factory=list)
    in_background: bool = False


@dataclass(frozen=True)
class Ending:
    """How a response has ended that was not complete. `body` is None where the first one still says all."""

    status: str
    body: bytes | None = None
    error: bytes | None = None  # JSON
    outputs: list[Item] = field(default_factory=list)


class Page(NamedTuple):
    """Some of a response's input items."""

    items: list[Item]
    has_more: bool


class Unknown(Exception):
    """Nothing of this id is kept for whoever asks."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.id = id


class AncestorGone(Unknown):
    """A response that the one that was named continues, directly or not."""


class NotContinued(Exception):
    """A response with this status has no answer to continue from."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


class NotCancelled(Exception):
    """A response with this status, or one that is computed while its client waits, cannot be cancelled."""

    def __init__(self, status: str, background: bool) -> None:
        super().__init__(status)
        self.status = status
        self.background = background


class TooLong(Exception):
    """More than may be read at once."""


class NoRoom(Exception):
    """Others may not lose as much as would have to go, or more is to be kept than may be in all."""
