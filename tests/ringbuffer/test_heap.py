"""The heaps of a lease: ranges do not overlap, and what has come back can be had again as one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbuffer.heap import Extent, Heap, LeaseHeaps, Place

GRANULE = 16


@given(
    st.integers(1, 40), st.lists(st.one_of(st.integers(0, 200), st.just(None)), max_size=200), st.randoms()
)
def test_ranges_do_not_overlap_and_nothing_is_lost(
    granules: int, sizes: list[int | None], random: object
) -> None:
    """A size is taken, None gives a range back; then all are, and the heap is one range."""
    heap = Heap(granules * GRANULE + 3, GRANULE)
    assert heap.size == granules * GRANULE
    words: list[int | None] = [None] * heap.size  # who has each
    held: dict[int, int] = {}
    for size in sizes:
        if size is None:
            if held:
                offset = random.choice(sorted(held))  # type: ignore[attr-defined]
                length = held.pop(offset)
                words[offset : offset + length] = [None] * length
                heap.give_back(offset)
        else:
            length = heap.rounded(size)
            assert length >= max(size, 1)
            assert length % GRANULE == 0
            free = "".join("." if word is None else "x" for word in words)
            offset_or_none = heap.take(size)
            first_fit = free.find("." * length)
            assert (offset_or_none is None) == (first_fit < 0)
            if offset_or_none is not None:
                assert offset_or_none == first_fit
                words[first_fit : first_fit + length] = [first_fit] * length
                held[first_fit] = length
        assert heap.n_free == words.count(None)
    for offset in list(held):
        heap.give_back(offset)
    assert heap.take(heap.size) == 0
    assert heap.n_free == 0


def test_a_range_comes_back_once() -> None:
    heap = Heap(64, GRANULE)
    offset = heap.take(1)
    assert offset == 0
    heap.give_back(offset)
    with pytest.raises(KeyError):
        heap.give_back(offset)


def test_a_request_has_both_ranges_or_none() -> None:
    heaps = LeaseHeaps(96, 64)
    assert heaps.take(Extent(33, 1)) == Place(0, 64, 0, 16, 16)
    assert heaps.take(Extent(33, 1)) is None
    assert heaps.take(Extent(1, 49)) is None
    assert heaps.take(Extent(32, 48)) == Place(64, 32, 16, 48, 48)
    heaps.give_back(Place(0, 64, 0, 16, 16))
    assert heaps.take(Extent(64, 16)) == Place(0, 64, 0, 16, 16)


def test_a_short_prompt_may_be_given_more() -> None:
    """U2: its copy is padded."""
    heaps = LeaseHeaps(200, 64, least_prompt=90)
    assert heaps.take(Extent(5, 1)) == Place(0, 96, 0, 16, 16)
    assert heaps.take(Extent(5, 1)) == Place(96, 96, 16, 16, 16)
    assert heaps.take(Extent(5, 1)) is None


def test_what_is_told_of_tokens_lies_behind_the_records() -> None:
    """Of each token that the range has room for, and of the prompt's."""
    heaps = LeaseHeaps(96, 1000)
    assert heaps.take(Extent(10, 20, 3, 50)) == Place(0, 32, 0, 32, 192)
    assert heaps.rooms(Extent(10, 20, 3, 50)) == (32, 192)
    assert heaps.outputs.n_free == 992 - 192
