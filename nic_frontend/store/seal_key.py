"""The key under which reasoning is sealed. It comes from a file or from the environment, never from the
command line, which every user of the machine can read.
"""

from __future__ import annotations

from pathlib import Path

from ringbuffer.small_file import read_small_file

VARIABLE = "BLINK_SEAL_KEY"
MIN_BYTES = 16
MEND = "make a key with `openssl rand -hex 32`"


def check_seal_key(key: bytes, source: str) -> bytes:
    """The key, where it is long enough. Raises ValueError."""
    if len(key) < MIN_BYTES:
        raise ValueError(
            f"the key in {source} has {len(key)} bytes, it must have at least {MIN_BYTES}: {MEND}"
        )
    return key


def read_seal_key(path: Path) -> bytes:
    """The key in a file, without white space around it. Raises ValueError."""
    return check_seal_key(read_small_file(path, MEND).strip(), str(path))
