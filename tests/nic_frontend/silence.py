"""A model that says no more and does not end: what must be seen at once is not seen by a later token."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

from mock_backend import MockBackend


@contextlib.contextmanager
def silence_behind(backend: MockBackend, tokens: Sequence[int]) -> Iterator[None]:
    """Behind the tokens and one more, until the block ends."""
    lock, is_over = threading.Lock(), False

    def script(prompt: list[int]) -> Iterator[int]:
        yield from tokens
        with lock:  # an answer may end before its last token, and its cancellation comes later still
            if not is_over:
                backend.stalled.set()
        yield tokens[0]

    backend.script = script
    try:
        yield
    finally:
        with lock:
            is_over = True
            backend.stalled.clear()
