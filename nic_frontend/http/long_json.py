"""JSON that is too long to be made in one piece: parts of it are made as they are sent (F10)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Any

PIECE = 1 << 16  # characters that are sent at once
BATCH = 1 << 13  # values of an array, or characters of a text, that are made at once

Write = Callable[..., str]  # json.dumps with some of its options


class Batches:
    """In the place of an array: its values, so many at a time as are made in a moment. Made anew whenever it
    is written.
    """

    def __init__(self, make: Callable[[], Iterable[list[Any]]]) -> None:
        self.make = make


class LongText:
    """In the place of a text."""

    def __init__(self, text: str) -> None:
        self.text = text


def numbers_of(array: Any) -> Batches:
    """The numbers of a one-dimensional array of numpy's, or of a list."""

    def made() -> Iterator[list[Any]]:
        for start in range(0, len(array), BATCH):
            part = array[start : start + BATCH]
            yield part if isinstance(part, list) else part.tolist()

    return Batches(made)


def pieces(value: object, write: Write) -> Iterator[str]:
    """What `write` makes of a value in which Batches and LongText may stand, in pieces."""
    place, found = secrets.token_hex(16), list[Batches | LongText]()  # no client can guess the place

    def instead(long: object) -> str:
        if not isinstance(long, Batches | LongText):
            raise TypeError(f"JSON has no {type(long).__name__}")
        found.append(long)
        return place

    first, *rest = write(value, default=instead).split(f'"{place}"')
    yield first
    for long, text in zip(found, rest, strict=True):
        yield from _array(long, write) if isinstance(long, Batches) else _text(long.text, write)
        yield text


def _array(batches: Batches, write: Write) -> Iterator[str]:
    opening = "["
    for batch in batches.make():
        if batch:
            yield opening + write(batch)[1:-1]
            opening = write([0, 0])[2:-2]  # what stands between two values
    yield "[]" if opening == "[" else "]"


def _text(text: str, write: Write) -> Iterator[str]:
    yield '"'
    for start in range(0, len(text), BATCH):
        yield write(text[start : start + BATCH])[1:-1]
    yield '"'
