"""The heaps of one lease: where the prompts and the answers of its requests lie (ring.h, blink_descriptor).

Whoever holds the lease gives ranges out and takes them back, alone: nothing of this is in the ring but the
ranges that the descriptors name.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple

from ringbuffer import abi
from ringbuffer.extents import output_words


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


class Extent(NamedTuple):
    """What a request needs of the heaps, but for its grammar."""

    prompt_words: int  # the prompt's tokens, and the controls
    max_tokens: int
    logprob_words: int = 0  # of each token of the answer
    prompt_logprobs: int = 0  # words for the whole prompt


@dataclass(frozen=True, slots=True)
class Place:
    """What one request has of its lease's heaps, as its descriptor says it: tokens, and records."""

    prompt_offset: int
    prompt_room: int
    output_offset: int
    output_room: int
    output_words: int  # of the whole range


class LeaseHeaps:
    """Both heaps of a lease. `least_prompt`: tokens that a prompt is given at least, however short it is."""

    def __init__(self, prompt_heap: int, output_heap: int, least_prompt: int = 0) -> None:
        self.prompts = Heap(prompt_heap, abi.PROMPT_GRANULE)
        self.outputs = Heap(output_heap, abi.OUTPUT_GRANULE)
        self._least_prompt = least_prompt

    def rooms(self, extent: Extent) -> tuple[int, int]:
        """Words of both heaps that such a request takes."""
        prompt_room = self.prompts.rounded(max(extent.prompt_words, self._least_prompt))
        return prompt_room, self.outputs.rounded(self._output_words(extent))

    def _output_words(self, extent: Extent) -> int:
        return output_words(self.outputs.rounded(extent.max_tokens), *extent[2:])

    def take(self, extent: Extent) -> Place | None:
        """None: it does not fit now. Nothing is taken then."""
        prompt_room, words = self.rooms(extent)
        prompt_offset = self.prompts.take(prompt_room)
        if prompt_offset is None:
            return None
        output_offset = self.outputs.take(words)
        if output_offset is None:
            self.prompts.give_back(prompt_offset)
            return None
        output_room = self.outputs.rounded(extent.max_tokens)
        return Place(prompt_offset, prompt_room, output_offset, output_room, words)

    def give_back(self, place: Place) -> None:
        self.prompts.give_back(place.prompt_offset)
        self.outputs.give_back(place.output_offset)
