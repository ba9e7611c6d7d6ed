"""What tests of kernels on the emulator share (emulator/threads.h)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

EPS = 1e-5  # of norms
ANY = 0xFFFFFFFF  # kAny of emulator/threads.h

Emulate = Callable[..., None]


@contextmanager
def lagging(emulate: Emulate, block: int = ANY, warp: int = ANY) -> Iterator[None]:
    """Threads that run in every hundredth round only."""
    emulate("slow", block, warp, 100)
    try:
        yield
    finally:
        emulate("slow", ANY, ANY, 1)
