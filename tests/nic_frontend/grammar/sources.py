"""What is compiled by other processes: sources as requests have them, and grammars as a frontend has them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from nic_frontend.compiling.store import Grammars, Source
from nic_frontend.observe.metrics import Metrics

MAX_WORDS = 1 << 20


def source_of(kind: str, content: Any) -> Source:
    return {"content": [kind, content], "tools": [], "calls": [False, True, None], "thinks": None}


def schema_source(schema: Any) -> Source:
    return source_of("json", schema)


def source_of_choice(*texts: str) -> Source:
    return source_of("choice", texts)


def slow_source(number: int) -> Source:
    """It takes as long as a grammar may, at least where no state too many comes before."""
    rules = [f'r{i} ::= ("a" | "b")* "a" ("a" | "b"){{{8 + i % 5}}} r{(i + 1) % 40}?' for i in range(40)]
    root = " | ".join(f'"k{number}-{i}" r{i}' for i in range(40))
    return source_of("grammar", "\n".join([f"root ::= {root}", *rules]))


@contextlib.contextmanager
def grammars(special_texts: Sequence[str] = (), counts: Metrics | None = None) -> Iterator[Grammars]:
    """`counts`: what counts them."""
    made = Grammars(MAX_WORDS, counts or Metrics(), special_texts)
    try:
        yield made
    finally:
        made.close()


class Left:
    """Of an Asker: it has left when it was told to."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def __call__(self) -> None:
        await self._event.wait()

    def leave(self) -> None:
        self._event.set()
