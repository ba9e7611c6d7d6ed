"""The ring's packed words, put together and taken apart (ring.h, "Words"); words.h is the same in C++."""

from __future__ import annotations

from dataclasses import dataclass

from ringbuffer import abi


def request_word(sequence: int, command: abi.Command, epoch: int) -> int:
    return (sequence & 0xFFFFFFFF) | (int(command) << 32) | ((epoch & abi.EPOCH_MASK) << 40)


@dataclass(frozen=True)
class Status:
    """A slot's status word, unpacked. `count` is the number of output records published."""

    sequence: int
    state: abi.State
    reason: abi.Reason
    count: int

    @classmethod
    def unpack(cls, word: int) -> Status:
        return cls(
            word & 0xFFFFFFFF,
            abi.State((word >> 32) & 0xF),
            abi.Reason((word >> 36) & 0xFF),
            (word >> 44) & abi.MAX_COUNT,
        )

    def pack(self) -> int:
        return self.sequence | (int(self.state) << 32) | (int(self.reason) << 36) | (self.count << 44)


def output_record(token: int, position: int, sequence: int) -> int:
    return (token & 0xFFFFFFFF) | ((position & abi.MAX_COUNT) << 32) | ((sequence & 0xFFF) << 52)


def pair_word(low: int, high: int) -> int:
    """A lease word {epoch, beat} or a lease ack {epoch, lease state}."""
    return (low & 0xFFFFFFFF) | ((high & 0xFFFFFFFF) << 32)
