"""Libraries in Rust panic: what they raise then is no Exception, and would pass every handler of errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

PANIC = "PanicException"  # of pyo3, which gives it no name that could be imported


class Panicked(RuntimeError):
    """A library panicked; the message is its own."""


@contextlib.contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raises Panicked where the body panics."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        if type(error).__name__ != PANIC:
            raise
        raise Panicked(str(error)) from error
