"""A slot's request, as a mock backend has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ringbuffer import abi
from ringbuffer.abi import Reason, State
from ringbuffer.extents import mask_words


def control_words(descriptor: np.void, vocab_size: int) -> int:
    mask = mask_words(vocab_size) if descriptor["flags"] & abi.RequestFlags.ALLOWS else 0
    processors = abi.PROCESSOR_WORDS * int(descriptor["n_processors"])
    return mask + 2 * int(descriptor["n_biases"]) + int(descriptor["ban_words"]) + processors


@dataclass
class Row:
    """One slot's request."""

    sequence: int
    state: State = State.EMPTY
    reason: Reason = Reason.NONE
    count: int = 0
    prompt: list[int] = field(default_factory=list)
    controls: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))
    grammar: bytes = b""
    descriptor: np.void | None = None
    answer: Iterator[int] | None = None
    # Its range in the ring, and records announced and not yet written: position, token.
    output: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    pending: list[tuple[int, int]] = field(default_factory=list)
    steps: int = 0
