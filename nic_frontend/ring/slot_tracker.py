"""The slot tracker (paper section 4.4): which slots of the lease are free, and what is free of its heaps,
known without reading the ring.

A slot is free when its status word is {last sequence, EMPTY}. The token reader sees that in its bulk read and
reports it once, so this cache is exact but for slots whose release is under way. Until then a request keeps
its ranges of the heaps: the scheduler writes its answer, and reads its prompt again when it was paused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nic_frontend.ring.grammar_ranges import GrammarRange, GrammarRanges
from nic_frontend.ring.shares import NOTHING, Need, Shares
from ringbuffer.heap import Extent, LeaseHeaps, Place


class Size(NamedTuple):
    """What a request needs of the heaps; room for its grammar unless that is there already."""

    prompt_words: int
    max_tokens: int
    grammar: bytes | None = None
    logprob_words: int = 0
    prompt_logprobs: int = 0

    @property
    def extent(self) -> Extent:
        return Extent(self.prompt_words, self.max_tokens, self.logprob_words, self.prompt_logprobs)


class Taken(NamedTuple):
    """What a slot has of the heaps."""

    place: Place
    grammar: GrammarRange | None


class Waiter(NamedTuple):
    sizes: Sequence[Size]
    client: int
    need: Need
    taken: asyncio.Future[tuple[int, list[int]]]  # the tracker's epoch, and the slots


class SlotTracker:
    """Those who wait are served in the order in which they came. `on_free` is told of each place whose
    request is released, before anybody else has it."""

    def __init__(self, n_slots: int, prompt_heap: int, output_heap: int, least_prompt: int = 0) -> None:
        self.n_slots = n_slots
        self.total = Need(n_slots, prompt_heap, output_heap)
        self._least_prompt = least_prompt
        self._waiting: deque[Waiter] = deque()
        self._epoch = 0
        self._taken: list[Taken | None] = []
        self.on_free: Callable[[Place], None] = lambda place: None
        self.reset()

    def reset(self) -> None:
        """All slots are free: the scheduler has just granted the lease."""
        self._epoch += 1
        for taken in filter(None, self._taken):
            self.on_free(taken.place)
        self._heaps = LeaseHeaps(self.total.prompts, self.total.outputs, self._least_prompt)
        self.grammars = GrammarRanges(self._heaps.prompts, self._least_prompt)
        self._free = bytearray(b"\1" * self.n_slots)
        self._taken = [None] * self.n_slots
        self._hint = 0
        self.n_free = self.n_slots
        self._releasing = NOTHING
        self.shares = Shares()
        self._serve()

    def need(self, sizes: Sequence[Size]) -> Need:
        """What such requests take together."""
        rooms = [self._heaps.rooms(size.extent) for size in sizes]
        blocks = {size.grammar for size in sizes if size.grammar}
        prompts = sum(prompt for prompt, _ in rooms) + sum(map(self.grammars.room, blocks))
        return Need(len(sizes), prompts, sum(output for _, output in rooms))

    def take(self, sizes: Sequence[Size], client: int = 0) -> list[int]:
        """A slot for each, with its ranges of the heaps.

        The scan is circular and starts behind the last slot taken. Empty when there is no room for
        all of them, or others wait.
        """
        return [] if self._waiting else self._take(sizes, client)

    def _take(self, sizes: Sequence[Size], client: int) -> list[int]:
        if len(sizes) > self.n_free:
            return []
        all_taken: list[Taken] = []
        for size in sizes:
            taken = self._take_one(size)
            if taken is None:
                for other in all_taken:
                    self._give_back(other)
                return []
            all_taken.append(taken)
        return [self._occupy(taken, client) for taken in all_taken]

    def _take_one(self, size: Size) -> Taken | None:
        grammar = self.grammars.take(size.grammar) if size.grammar else None
        if size.grammar and grammar is None:
            return None
        place = self._heaps.take(size.extent)
        while place is None and self.grammars.evict():
            place = self._heaps.take(size.extent)
        if place is None and grammar is not None:
            self.grammars.give_back(grammar)
        return None if place is None else Taken(place, grammar)

    def _give_back(self, taken: Taken) -> None:
        self._heaps.give_back(taken.place)
        if taken.grammar is not None:
            self.grammars.give_back(taken.grammar)

    def _occupy(self, taken: Taken, client: int) -> int:
        slot = self._free.find(1, self._hint)
        if slot < 0:
            slot = self._free.find(1)
        self._free[slot] = 0
        self._taken[slot] = taken
        self._hint = slot + 1
        self.n_free -= 1
        self.shares.took(client, slot, self._held(slot, 1))
        return slot

    def place(self, slot: int) -> Place:
        """The ranges of a slot that was taken."""
        return self._of(slot).place

    def grammar(self, slot: int) -> GrammarRange | None:
        """Where the grammar of a slot that was taken lies."""
        return self._of(slot).grammar

    def _of(self, slot: int) -> Taken:
        taken = self._taken[slot]
        assert taken is not None
        return taken

    def exceeds_share(self, sizes: Sequence[Size], client: int) -> bool:
        """Whether the client holds too much already to have that as well."""
        return not self.shares.allow(client, self.need(sizes), self._unused().plus(self._releasing))

    async def wait(self, sizes: Sequence[Size], timeout_s: float | None, client: int = 0) -> list[int]:
        """As `take`, but waits for what is being released; without a timeout for what is in use, too.

        Empty when that does not suffice, also for those who wait already, or takes too long. Raises what
        `fail_waiting` was given meanwhile.
        """
        if taken := self.take(sizes, client):
            return taken
        need = self.need(sizes)
        if timeout_s is not None and (timeout_s <= 0 or not self._suffices(need)):
            return []
        waiter = Waiter(sizes, client, need, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        try:
            await asyncio.wait([waiter.taken], timeout=timeout_s)
        except asyncio.CancelledError:
            if not waiter.taken.done() or waiter.taken.exception() is None:
                for slot in self._leave(waiter):
                    self.put_back(slot)
            raise
        return self._leave(waiter)

    def _suffices(self, need: Need) -> bool:
        """Whether there is room, for those who wait already as well, when all that ends is released."""
        for other in self._waiting:
            need = need.plus(other.need)
        return need.within(self._unused().plus(self._releasing))

    def _leave(self, waiter: Waiter) -> list[int]:
        """The end of a wait: what it was given. Whoever waited behind it may have its turn now."""
        if waiter.taken.done():
            epoch, taken = waiter.taken.result()
            return taken if epoch == self._epoch else []  # of a lease that was lost since
        self._waiting.remove(waiter)
        self._serve()
        return []

    def fail_waiting(self, error: Exception) -> None:
        """All who wait now end with `error`."""
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            waiter.taken.set_exception(error)

    def _serve(self) -> None:
        while self._waiting and (taken := self._take(*self._waiting[0][:2])):
            self._waiting.popleft().taken.set_result((self._epoch, taken))

    def _unused(self) -> Need:
        prompts = self._heaps.prompts.n_free + self.grammars.idle_words()
        return Need(self.n_free, prompts, self._heaps.outputs.n_free)

    def releasing(self, slot: int) -> None:
        """The slot's request has ended; `free` follows."""
        self.shares.gave_back(slot)
        self._releasing = self._releasing.plus(self._held(slot, 1))

    def free(self, slot: int) -> None:
        self._releasing = self._releasing.plus(self._held(slot, -1))
        self.on_free(self.place(slot))
        self.put_back(slot)

    def _held(self, slot: int, sign: int) -> Need:
        place = self.place(slot)
        return Need(sign, sign * place.prompt_room, sign * place.output_words)

    def put_back(self, slot: int) -> None:
        """Returns a slot that was taken and never submitted to."""
        self.shares.gave_back(slot)
        self._give_back(self._of(slot))
        self._taken[slot] = None
        self._free[slot] = 1
        self.n_free += 1
        self._serve()
