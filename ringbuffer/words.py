"""The ring's packed words, put together and taken apart (ring.h, "Words"); words.h is the same in C++."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from ringbuffer import abi

Kind = TypeVar("Kind", bound=IntEnum)


def member_of(kind: type[Kind], word: int) -> Kind | int:
    """The member of `kind` that a word of the ring stands for; the word itself where it stands for none.

    Every process that has mapped the ring can write any word, so reading one must not raise. A member is
    equal to its number: callers compare the result with members as if it were one.
    """
    return kind(word) if word in kind._value2member_map_ else word


def name_of(kind: type[IntEnum], word: int) -> str:
    """The name of the member that a word stands for, or "unknown (99)"."""
    found = member_of(kind, word)
    return found.name if isinstance(found, kind) else f"unknown ({word})"


def text(field: bytes) -> str:
    """What a zero-padded field of the header says."""
    return field.rstrip(b"\0").decode(errors="replace")


def request_word(sequence: int, command: abi.Command, epoch: int) -> int:
    return (sequence & 0xFFFFFFFF) | (int(command) << 32) | ((epoch & abi.EPOCH_MASK) << 40)


@dataclass(frozen=True)
class Status:
    """A slot's status word, unpacked. `count` is the number of output records published.

    State and reason are numbers where the word has none of the contract's (member_of).
    """

    sequence: int
    state: abi.State | int
    reason: abi.Reason | int
    count: int

    @classmethod
    def unpack(cls, word: int) -> Status:
        return cls(
            word & 0xFFFFFFFF,
            member_of(abi.State, (word >> 32) & 0xF),
            member_of(abi.Reason, (word >> 36) & 0xFF),
            (word >> 44) & abi.MAX_COUNT,
        )

    def pack(self) -> int:
        return self.sequence | (int(self.state) << 32) | (int(self.reason) << 36) | (self.count << 44)


def output_record(token: int, position: int, sequence: int) -> int:
    return (token & 0xFFFFFFFF) | ((position & abi.MAX_COUNT) << 32) | ((sequence & 0xFFF) << 52)


def pair_word(low: int, high: int) -> int:
    """A lease word {epoch, beat} or a lease ack {epoch, lease state}."""
    return (low & 0xFFFFFFFF) | ((high & 0xFFFFFFFF) << 32)


def event_word(attachment: int, count: int) -> int:
    return (attachment & 0xFFFF) | (count << 16)


def unpack_event_word(word: int) -> tuple[int, int]:
    """The attachment and the count of an event word."""
    return word & 0xFFFF, word >> 16
