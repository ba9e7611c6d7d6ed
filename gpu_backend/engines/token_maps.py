"""Which tokens of a vocabulary have bytes of which classes, as maps of bits (blink_vocabulary).

Where bytes of some classes leave a grammar as it is, the sampler finds the allowed tokens in them
(kernels/ops/sampling/known_tokens.h).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu_backend.abi import (
    BYTE_CLASSES,
    CLASS_SETS,
    MAP_FIRST,
    MAP_NO_BYTES,
    MAP_NOT_PLAIN,
    MAP_REST,
    MAPS,
    WIDE_SETS,
)
from gpu_backend.arithmetic import ceil_div

MAP_TOKENS = 128  # a map is of a multiple of as many, which are read at once

DIGITS, UPPER, LOWER = b"0123456789", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"abcdefghijklmnopqrstuvwxyz"
CONTROLS, HIGH = bytes(range(0x20)), bytes(range(0x80, 0x100))
CLASSES = [
    *(DIGITS, LOWER[:6], LOWER[6:], UPPER[:6], UPPER[6:]),
    *(bytes([byte]) for byte in b'_-. /:@+,="\\\n'),
    *(b"<>", b"\t\r", CONTROLS, HIGH[:0x40], HIGH[0x40:], bytes(range(256))),
]  # a byte is of the first that has it


def _class_of_byte() -> NDArray[np.uint8]:
    found = np.zeros(256, np.uint8)
    for kind, members in reversed(list(enumerate(CLASSES))):
        found[list(members)] = kind
    return found


CLASS_OF_BYTE = _class_of_byte()


def _set_of(members: bytes) -> int:
    """The set of the classes that these bytes are of."""
    return sum(1 << int(kind) for kind in np.unique(CLASS_OF_BYTE[list(members)]))


# The sampler takes the first that lie within what it looks for: larger sets come before those within them.
_NAMES = _set_of(UPPER + LOWER + DIGITS + b"_-")
WIDE = [
    (1 << BYTE_CLASSES) - 1 - _NAMES,
    *map(_set_of, (UPPER + LOWER, UPPER + b"-", UPPER, LOWER, CONTROLS + b'"\\', CONTROLS, HIGH)),
]
SETS = np.array([*WIDE, *(1 << kind for kind in range(BYTE_CLASSES))], np.uint32)
assert (len(CLASSES), len(WIDE), len(SETS)) == (BYTE_CLASSES, WIDE_SETS, CLASS_SETS)


def first_and_rest(data: NDArray[np.uint8], first: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The sets of classes of each token's first byte, and of its bytes behind the first.

    Token t has data[first[t]] .. data[first[t + 1]].
    """
    sets = np.zeros((2, len(first) - 1), np.uint32)
    has_bytes = first[1:] > first[:-1]
    begins = first[:-1][has_bytes]
    if len(begins):
        of_bytes = np.uint32(1) << CLASS_OF_BYTE[data].astype(np.uint32)
        sets[0, has_bytes] = of_bytes[begins]
        of_bytes[begins] = 0
        sets[1, has_bytes] = np.bitwise_or.reduceat(of_bytes, begins)
    return sets


def maps(sets: NDArray[np.uint32], plain: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """All maps, of tokens with these sets and numbers of plain characters."""
    n = sets.shape[1]
    marked = np.ones((MAPS, ceil_div(n, MAP_TOKENS) * MAP_TOKENS), np.bool_)
    no_bytes = sets[0] == 0
    for kind, first in enumerate((MAP_FIRST, MAP_REST)):
        for i, wanted in enumerate(SETS):
            marked[first + i, :n] = (sets[kind] & wanted != 0) | no_bytes
    marked[MAP_NO_BYTES, :n] = no_bytes
    marked[MAP_NOT_PLAIN, :n] = plain[:n] == 0
    return np.packbits(marked, axis=1, bitorder="little").view("<u4")
