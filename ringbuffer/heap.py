"""The heaps of one lease: where the prompts and the answers of its requests lie (ring.h, blink_descriptor).

Whoever holds the lease gives ranges out and takes them back, alone: nothing of this is in the ring but the
ranges that the descriptors name.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from ringbuffer import abi


class Heap:
    """Ranges of `size` words, first fit. Sizes and offsets are multiples of `granule`.

    Free ranges are kept in order and are merged with their neighbours, so when everything has come back the
    heap is one range again.
    """

    def __init__(self, size: int, granule: int) -> None:
        self.size = size // granule * granule
        self.n_free = self.size
        self._granule = granule
        self._starts = [0]
        self._lengths = [self.size]
        self._taken: dict[int, int] = {}  # offset to length

    def rounded(self, n: int) -> int:
        """What a range of n words takes: whole granules, at least one."""
        return max(1, -(-n // self._granule)) * self._granule

    def take(self, n: int) -> int | None:
        """The offset of a range of `rounded(n)` words, or None: none of that length is free."""
        length = self.rounded(n)
        for i, free in enumerate(self._lengths):
            if free < length:
                continue
            offset = self._starts[i]
            if free == length:
                del self._starts[i], self._lengths[i]
            else:
                self._starts[i] += length
                self._lengths[i] -= length
            self._taken[offset] = length
            self.n_free -= length
            return offset
        return None

    def give_back(self, offset: int) -> None:
        """Frees the range that `take` gave out at `offset`. Raises KeyError if there is none."""
        length = self._taken.pop(offset)
        self.n_free += length
        i = bisect_left(self._starts, offset)
        if i < len(self._starts) and offset + length == self._starts[i]:
            length += self._lengths[i]
            del self._starts[i], self._lengths[i]
        if i and self._starts[i - 1] + self._lengths[i - 1] == offset:
            self._lengths[i - 1] += length
        else:
            self._starts.insert(i, offset)
            self._lengths.insert(i, length)


@dataclass(frozen=True, slots=True)
class Place:
    """What one request has of its lease's heaps, as its descriptor says it: tokens, and records."""

    prompt_offset: int
    prompt_room: int
    output_offset: int
    output_room: int


class LeaseHeaps:
    """Both heaps of a lease. `least_prompt`: tokens that a prompt is given at least, however short it is."""

    def __init__(self, prompt_heap: int, output_heap: int, least_prompt: int = 0) -> None:
        self.prompts = Heap(prompt_heap, abi.PROMPT_GRANULE)
        self.outputs = Heap(output_heap, abi.OUTPUT_GRANULE)
        self._least_prompt = least_prompt

    def rooms(self, prompt_tokens: int, max_tokens: int) -> tuple[int, int]:
        """Tokens and records that such a request takes."""
        return self.prompts.rounded(max(prompt_tokens, self._least_prompt)), self.outputs.rounded(max_tokens)

    def take(self, prompt_tokens: int, max_tokens: int) -> Place | None:
        """None: it does not fit now. Nothing is taken then."""
        prompt_room, output_room = self.rooms(prompt_tokens, max_tokens)
        prompt_offset = self.prompts.take(prompt_room)
        if prompt_offset is None:
            return None
        output_offset = self.outputs.take(output_room)
        if output_offset is None:
            self.prompts.give_back(prompt_offset)
            return None
        return Place(prompt_offset, prompt_room, output_offset, output_room)

    def give_back(self, place: Place) -> None:
        self.prompts.give_back(place.prompt_offset)
        self.outputs.give_back(place.output_offset)
