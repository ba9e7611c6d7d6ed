"""The names of logits processors, by which requests ask for them, and how the ring's header tells them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ringbuffer import abi
from ringbuffer.words import text

FIELD_BYTES = abi.Header["processor_names"].itemsize
LONGEST_NAME = FIELD_BYTES // abi.MAX_PROCESSORS - 1
NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{LONGEST_NAME}}}")
NAME_FORM = f"up to {LONGEST_NAME} letters, digits, '_', '-' and '.'"


def packed(names: Sequence[str]) -> bytes:
    """The header's field, for at most MAX_PROCESSORS names of the form."""
    return "".join(f"{name}\n" for name in names).encode().ljust(FIELD_BYTES, b"\0")


def unpacked(raw: bytes) -> tuple[str, ...]:
    """The names in the header's field, in the order of their indices."""
    return tuple(text(raw).splitlines())
