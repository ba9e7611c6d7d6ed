"""A model that says no more and does not end: what must be seen at once is not seen by a later token."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from mock_backend import MockBackend


@contextlib.contextmanager
def silence_behind(backend: MockBackend, tokens: Sequence[int]) -> Iterator[None]:
    """Behind the tokens and one more, until the block ends."""

    def script(prompt: list[int]) -> Iterator[int]:
        yield from tokens
        backend.stalled.set()
        yield tokens[0]

    backend.script = script
    try:
        yield
    finally:
        backend.stalled.clear()
