"""The request tracker (paper section 4.4): slot, counts and state of every open request; the only caller of
the token reader.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

import numpy as np

from nic_frontend import errors
from nic_frontend.library import (
    EVENT_FINISHED,
    EVENT_FREED,
    EVENT_LOGPROBS,
    EVENT_LOST,
    EVENT_PROMPT_LOGPROBS,
)
from nic_frontend.ring import refusals
from nic_frontend.ring.request import Arrival, Request
from nic_frontend.ring.slot_tracker import SlotTracker
from nic_frontend.ring.token_reader import TokenReader
from ringbuffer import abi


class RequestWatcher(Protocol):
    """Is told of the tokens of all requests."""

    def on_submitted(self, request: Request) -> None: ...

    def on_tokens(self, request: Request, n: int, now: float) -> None:
        """`n` arrived at `now`; the request does not count them yet."""
        ...

    def on_slow_client(self) -> None: ...


class RequestTracker:
    """Lives on the event loop. A slot is in use from `submit` until the reader reports it freed (F2)."""

    def __init__(
        self, reader: TokenReader, slots: SlotTracker, watcher: RequestWatcher, slot_wait_s: float | None
    ) -> None:
        """`slot_wait_s` as in FrontendOptions."""
        self.slots = slots
        self.down: str | None = None  # why nothing can be served now
        self._reader = reader
        self._watcher = watcher
        self._slot_wait_s = slot_wait_s
        self._open: list[Request | None] = [None] * slots.n_slots
        self._burst: list[tuple[Request, bytes]] = []  # with its descriptor

    @property
    def n_open(self) -> int:
        return sum(request is not None for request in self._open) + len(self._burst)

    async def submit(self, requests: list[Request]) -> None:
        """Gives each request a slot and submits all that came in this turn of the loop in one call, which has
        returned when this does.

        Raises ApiError 400 when the ring could never hold them all, 429 when there are not enough slots or
        there is no room in the heaps now, and 503 when the backend cannot serve.
        """
        if self.down is not None:
            raise errors.unavailable(self.down)
        descriptors = [request.descriptor() for request in requests]
        sizes = [request.size for request in requests]
        need = self.slots.need(sizes)
        if not need.within(self.slots.total):
            raise refusals.too_large(need, self.slots.total)
        client = requests[0].client
        if self._slot_wait_s is not None and self.slots.exceeds_share(sizes, client):
            raise refusals.share_full()
        slots = await self.slots.wait(sizes, self._slot_wait_s, client)
        if self.down is not None:  # since then: what failed the open requests did not see those that waited
            for slot in slots:
                self.slots.put_back(slot)
            raise errors.unavailable(self.down)
        if not slots and self.slots.n_free < len(requests):
            raise refusals.slots_full(len(requests), self.slots.n_slots)
        if not slots:
            raise refusals.heaps_full(need)
        if not self._burst:
            asyncio.get_running_loop().call_soon(self._flush)
        for request, slot, descriptor in zip(requests, slots, descriptors, strict=True):
            request.slot = slot
            self._burst.append((request, descriptor))
        await asyncio.sleep(0)  # behind `_flush`, which was due first
        for request in requests:
            request.mailbox.check()

    def _flush(self) -> None:
        pairs, self._burst = self._burst, []
        for request, _ in pairs:
            if request.ended:
                self.slots.put_back(request.slot)
        burst = [request for request, _ in pairs if not request.ended]
        if not burst:
            return
        slots = np.array([request.slot for request in burst], dtype=np.uint32)
        packed = b"".join(descriptor for request, descriptor in pairs if not request.ended)
        descriptors = np.frombuffer(bytearray(packed), dtype=abi.Descriptor)
        places = [self.slots.place(request.slot) for request in burst]
        for name in ("prompt_offset", "prompt_room", "output_offset", "output_room"):
            descriptors[name] = [getattr(place, name) for place in places]
        for request, descriptor in zip(burst, descriptors, strict=True):
            self._give_grammar(request, descriptor)
        prompts = np.concatenate([request.payload for request in burst])
        if not self._reader.submit(slots, descriptors, prompts):
            self.slots.grammars.forget_writes()
            for request in burst:
                self.slots.put_back(request.slot)
                request.ended = True
                request.mailbox.fail(errors.unavailable("the way to the backend was lost"))
            return
        for request, sequence in zip(burst, descriptors["sequence"].tolist(), strict=True):
            request.sequence = sequence
            self._open[request.slot] = request
            self._watcher.on_submitted(request)

    def _give_grammar(self, request: Request, descriptor: np.void) -> None:
        """Names the request's grammar in its descriptor, and writes it where it is not there yet."""
        grammar = self.slots.grammar(request.slot)
        if grammar is None:
            return
        descriptor["grammar_offset"], descriptor["grammar_words"] = grammar.offset, len(grammar.block) // 4
        descriptor["grammar_name"], descriptor["grammar_crc32c"] = grammar.name, grammar.crc32c
        if not grammar.written:
            self._reader.write_prompt_heap(grammar.offset, grammar.block, grammar.room)
            grammar.written = True

    def on_connection_lost(self) -> None:
        """What was written last may not have arrived (V4). Called before the connection is made again, for
        requests that find the new one, and after it, for what was written into the dead one meanwhile.
        """
        self.slots.grammars.forget_writes()

    def cancel(self, request: Request) -> None:
        """Ends a request early; harmless when it has ended."""
        if request.ended:
            return
        request.ended = True
        if request.sequence is None:
            return  # still in the burst, or never submitted
        self._open[request.slot] = None
        self.slots.releasing(request.slot)
        self._reader.cancel(request.slot, request.sequence)

    def on_readable(self) -> None:
        """The reader's eventfd fired: hands what arrived to the mailboxes."""
        if self._receive():
            asyncio.get_running_loop().call_soon(self.on_readable)

    def _receive(self) -> bool:
        """Hands over one batch; whether there may be more."""
        events, tokens, more = self._reader.drain()
        now = time.perf_counter()
        at = 0
        for slot, sequence, n_tokens, kind, reason, cached, prefill_us in events:
            begin, at = at, at + n_tokens
            if kind == EVENT_FREED:
                self.slots.free(slot)
                continue
            request = self._open[slot]
            if request is None or request.sequence != sequence:
                continue  # cancelled while this was on its way
            if kind >= EVENT_LOGPROBS:
                known = request.prompt_logprobs if kind == EVENT_PROMPT_LOGPROBS else request.logprobs
                known += tokens[begin:at]
                continue
            if kind == EVENT_LOST:  # it is not sent again: the client may (V7)
                self._end(request)
                request.mailbox.fail(errors.unavailable("the connection to the backend broke"))
                continue
            if n_tokens:
                if request.n_tokens == 0:
                    request.cached_tokens = min(cached, len(request.prompt))
                    request.prefill_s = prefill_us / 1e6
                self._watcher.on_tokens(request, n_tokens, now)
                request.count(n_tokens, now)
                if request.answered is not None:
                    request.answered += tokens[begin:at]
            finished = kind == EVENT_FINISHED
            if finished:
                self._end(request)
                if reason == abi.Reason.BAD_CHECKSUM:  # its grammar may be what did not arrive
                    self.slots.grammars.forget_writes()
            told = request.take_logprobs() if n_tokens else None
            request.mailbox.put(Arrival(request, tokens[begin:at], reason if finished else None, told))
            if request.mailbox.overflowing:
                self._watcher.on_slow_client()
                self.cancel(request)
                request.mailbox.abandon()
        return more

    def _end(self, request: Request) -> None:
        request.ended = True
        self._open[request.slot] = None
        self.slots.releasing(request.slot)

    def fail_all(self, error: errors.ApiError) -> None:
        """Ends every open request with an error, but for those whose last tokens the reader has delivered,
        and every request that waits for a slot.

        The slots come back when the scheduler has released them.
        """
        while self._receive():
            pass
        for request in [*(request for request, _ in self._burst), *filter(None, self._open)]:
            self.cancel(request)
            request.mailbox.fail(error)
        self.slots.fail_waiting(error)

    def reset(self) -> None:
        """A new lease was granted, and all its slots are free. What was open under the old one has failed."""
        for request, _ in self._burst:
            request.ended = True
            request.mailbox.fail(errors.unavailable("the lease was lost"))
        self._burst = []
        self._open = [None] * self.slots.n_slots
        self.slots.reset()

    async def close(self, timeout_s: float) -> None:
        """Cancels what is open and waits up to `timeout_s` for the scheduler to free every slot."""
        self.down = "the frontend is shutting down"
        self.fail_all(errors.unavailable(self.down))
        deadline = time.monotonic() + timeout_s
        while self.slots.n_free < self.slots.n_slots and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
