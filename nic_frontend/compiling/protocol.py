"""What a frontend and its processes that compile grammars tell each other, in frames (processes/frames.py).

The first frame to a process is JSON: the texts of the model's special tokens, and the words that a block may
have. The process answers with READY. Each further frame to it is a level and a source; it is answered with an
outcome, how much of a processor's time that took, and what goes with the outcome.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from nic_frontend.grammar.abi import GrammarStatus
from nic_frontend.grammar.compiler import REASONS, TIME_S

SLICES_S = (0.005, 0.05, 0.4, TIME_S)  # of a processor, that a grammar is given at each level
GRACE_S = 1.5  # more, until the kernel ends a process: to give back memory may take a while
MEMORY_BYTES = 512 << 20  # that a process may hold
MOST_TOLD = 1_000  # characters of a refusal: it has names from the source in it
READY = b"ready"
TOO_SLOW = REASONS[GrammarStatus.TOO_SLOW]

_HEAD = struct.Struct("<BBd")


class Outcome(IntEnum):
    BLOCK = 0  # and the block
    REFUSED = 1  # and why, in UTF-8
    NOT_YET = 2  # it takes longer than its slice
    FAILED = 3  # by a fault of the compiler's, and why in a line for the client and another for the log


class Answer(NamedTuple):
    outcome: Outcome
    spent_s: float  # of a processor
    content: bytes = b""
    is_last: bool = False  # the process ends behind it


def start_frame(special_texts: Iterable[str], max_words: int) -> bytes:
    return json.dumps([list(special_texts), max_words]).encode()


def packed(answer: Answer) -> bytes:
    return _HEAD.pack(answer.outcome, answer.is_last, answer.spent_s) + answer.content


def unpacked(frame: bytes) -> Answer:
    """Raises ValueError for what is no answer: the process may have been broken out of."""
    if len(frame) < _HEAD.size:
        raise ValueError("it has no head")
    outcome, is_last, spent_s = _HEAD.unpack_from(frame)
    if not 0 <= spent_s < 2 * (TIME_S + GRACE_S):
        raise ValueError("its time cannot be")
    if outcome != Outcome.BLOCK and len(frame) > _HEAD.size + 4 * MOST_TOLD:
        raise ValueError("it says too much")
    return Answer(Outcome(outcome), spent_s, frame[_HEAD.size :], bool(is_last))


def most_bytes(max_words: int) -> int:
    """Of an answer."""
    return _HEAD.size + max(4 * max_words, 4 * MOST_TOLD)
