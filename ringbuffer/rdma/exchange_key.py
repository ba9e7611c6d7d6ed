"""The key that both sides of an exchange share. It comes from a file or from the environment, never from the
command line, which every user of the machine can read.
"""

from __future__ import annotations

import os
from pathlib import Path

from ringbuffer.small_file import read_small_file

VARIABLE = "BLINK_RING_KEY"
MIN_BYTES = 16
MEND = (
    "make one with `openssl rand -hex 32` and give the same to both sides, "
    f"in ${VARIABLE} or with --ring-key-file"
)


def ring_key(file: Path | None) -> bytes:
    """The key in `file`, or else in $BLINK_RING_KEY, without white space around it.

    Raises ValueError when there is none, it is too short, or the file cannot be read.
    """
    if file is not None:
        key, source = read_small_file(file, MEND).strip(), str(file)
    else:
        key, source = os.environ.get(VARIABLE, "").encode().strip(), f"${VARIABLE}"
    if not key:
        raise ValueError(f"no key for the ring in {source}: {MEND}")
    if len(key) < MIN_BYTES:
        raise ValueError(f"the key in {source} has {len(key)} bytes, it must have at least {MIN_BYTES}")
    return key
