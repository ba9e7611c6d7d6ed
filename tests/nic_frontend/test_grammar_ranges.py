"""Grammars in the lease's heap of prompts: shared, kept, and making room."""

from __future__ import annotations

from nic_frontend.library import crc32c
from nic_frontend.ring.slot_tracker import Need, Size, SlotTracker
from ringbuffer.heap import Place

FIRST, SECOND, LARGE = b"abcd" * 40, b"efgh" * 40, b"ijkl" * 97


def test_equal_grammars_share_a_range() -> None:
    slots = SlotTracker(16, 256, 1024)
    assert slots.take([Size(1, 1, FIRST), Size(1, 1, FIRST), Size(1, 1, SECOND)]) == [0, 1, 2]
    first, again, second = (slots.grammar(slot) for slot in range(3))
    assert first is not None
    assert second is not None
    assert first is again
    assert (first.offset, first.room, first.crc32c) == (0, 64, crc32c(FIRST))
    assert (second.offset, second.name != first.name) == (96 + 32, True)
    assert slots.grammars.idle_words() == 0


def test_a_grammar_stays_until_its_room_is_needed() -> None:
    slots = SlotTracker(16, 256, 1024)
    slots.take([Size(1, 1, FIRST), Size(1, 1, SECOND)])
    first = slots.grammar(0)
    assert first is not None
    first.written = True
    for slot in (0, 1):
        slots.put_back(slot)
    assert slots.grammars.idle_words() == 128
    slots.take([Size(1, 1, FIRST)])
    assert slots.grammar(2) is first  # and what is there is there
    assert slots.take([Size(1, 1, LARGE)]) == [3]  # in the place of the second
    assert slots.grammars.idle_words() == 0
    assert slots.take([Size(1, 1, SECOND)]) == []  # the others are in use
    assert slots.n_free == 14
    slots.put_back(3)
    assert slots.take([Size(128, 1)]) == [4]  # a prompt takes the room of grammars, too


def test_a_call_that_does_not_fit_takes_nothing() -> None:
    slots = SlotTracker(16, 128, 1024)
    assert slots.take([Size(32, 1, FIRST), Size(64, 1)]) == []
    assert slots.grammars.idle_words() == 64
    assert slots.need([Size(32, 1, FIRST), Size(32, 1, FIRST)]) == Need(2, 128, 32)
    assert slots.take([Size(128, 1)]) == [0]
    assert slots.place(0) == Place(0, 128, 0, 16, 16)


def test_what_may_be_lost_is_written_again() -> None:
    slots = SlotTracker(16, 128, 1024)
    slots.take([Size(1, 1, FIRST)])
    grammar = slots.grammar(0)
    assert grammar is not None
    grammar.written = True
    slots.grammars.forget_writes()
    assert not grammar.written
