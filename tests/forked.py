"""A process that is forked from this one, as Python's multiprocessing does, and outlives what is tested."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def forked() -> Iterator[None]:
    """It has what this process has open, and waits until the block ends."""
    read_end, write_end = os.pipe()
    begun_read, begun_write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write_end)
        os.write(begun_write, b"x")  # behind what runs in a child after a fork
        os.read(read_end, 1)
        os._exit(0)
    try:
        os.read(begun_read, 1)
        yield
    finally:
        for end in (read_end, write_end, begun_read, begun_write):
            os.close(end)
        os.waitpid(child, 0)
