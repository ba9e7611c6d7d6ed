"""The ring's words, and the checksum of its payloads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringbuffer import abi
from ringbuffer.crc32c import crc32c
from ringbuffer.words import Status, output_record, request_word


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(abi.State),
    st.sampled_from(abi.Reason),
    st.integers(0, abi.MAX_COUNT),
)
def test_a_status_word_holds_what_was_packed(
    sequence: int, state: abi.State, reason: abi.Reason, count: int
) -> None:
    status = Status(sequence, state, reason, count)
    assert Status.unpack(status.pack()) == status
    assert status.pack() < 2**64


@given(st.integers(0, 2**64 - 1))
def test_any_status_word_can_be_unpacked(word: int) -> None:
    """Whoever has mapped the ring can write it."""
    status = Status.unpack(word)
    assert status.pack() == word


def test_words_have_the_documented_layout() -> None:
    assert request_word(5, abi.Command.CANCEL, 0x1ABCDEF) == 5 | 2 << 32 | 0xABCDEF << 40
    assert output_record(9, 3, 0x12345) == 9 | 3 << 32 | 0x345 << 52


def test_crc32c_vectors() -> None:
    """RFC 3720 appendix B.4."""
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(bytes([255] * 32)) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
