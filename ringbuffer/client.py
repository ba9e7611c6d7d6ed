"""A frontend in one page: attaches, submits, reads tokens. For tests and benchmarks, and as an example.

It serves one process and a few hundred requests; the real frontend is nic_frontend/. Stores and loads of
words are plain aligned numpy accesses, so it runs on x86-64 only (R2).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringbuffer import abi
from ringbuffer.extents import NO_CONTROLS, Controls
from ringbuffer.heap import Extent, LeaseHeaps, Place
from ringbuffer.name import RingError
from ringbuffer.region import Region
from ringbuffer.words import Status, output_record, pair_word, request_word

GRANT_S = 5.0
POLL_S = 0.0005
NONE_TOLD = np.zeros((0, 0), np.uint64)


@cache
def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


def crc32c(data: bytes) -> int:
    """CRC-32C (RFC 3720 appendix B.4)."""
    table, value = _crc_table(), 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


@dataclass
class Stream:
    """One submitted request and what came back so far. Times are time.monotonic() seconds of each read."""

    slot: int
    sequence: int
    place: Place
    tokens: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    grammar: int | None = None  # where it lies in the heap of prompts
    told: tuple[int, int] = (
        0,
        0,
    )  # words of log-probabilities, of each token of the answer and of the prompt
    prompt_tokens: int = 0
    logprobs: NDArray[np.uint64] = field(default_factory=lambda: NONE_TOLD)  # [tokens][words]
    prompt_logprobs: NDArray[np.uint64] = field(default_factory=lambda: NONE_TOLD)
    reason: abi.Reason | int | None = None
    cached: int = 0  # tokens of the prompt that the prefix cache had

    @property
    def done(self) -> bool:
        return self.reason is not None


class RingClient:
    """Holds a lease of `region` from creation to `close`. Raises RingError when it is not granted in time."""

    def __init__(self, region: Region, lease: int = 0) -> None:
        self.region = region
        self._lease = lease
        self._slots = region.geometry.lease_slots(lease)
        self._free = list(reversed(self._slots))
        self._heaps = LeaseHeaps(region.geometry.prompt_heap, region.geometry.output_heap)
        self._releasing: list[Stream] = []
        self._tickets = 0
        self._beats = 0
        self._epoch = (int(region.leases["word"][lease]) & 0xFFFFFFFF) + 1
        acknowledged = int(region.lease_acks["word"][lease]) & 0xFFFFFFFF
        self._epoch = max(self._epoch, acknowledged + 1)
        self._closing = threading.Event()
        self._beat()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()
        granted = pair_word(self._epoch, abi.LeaseState.GRANTED)
        deadline = time.monotonic() + GRANT_S
        while int(region.lease_acks["word"][lease]) != granted:
            if time.monotonic() > deadline:
                self._closing.set()
                raise RingError(
                    f"lease {lease} was not granted within {GRANT_S:.0f} s: is the scheduler alive?"
                )
            time.sleep(POLL_S)

    def _beat(self) -> None:
        self._beats += 1
        self.region.leases["word"][self._lease] = pair_word(self._epoch, self._beats)

    def _keep(self) -> None:
        while not self._closing.wait(abi.LEASE_BEAT_NS / 2e9):
            self._beat()

    def submit(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        grammar: bytes | None = None,
        controls: Controls = NO_CONTROLS,
        **params: Any,
    ) -> Stream:
        """Greedy unless `params` (of blink_descriptor) say otherwise; `grammar` is what the answer may be.

        Raises RingError when no slot is free.
        """
        stream = self.prepare(prompt, max_tokens, grammar, controls, **params)
        self.start(stream)
        return stream

    def prepare(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        grammar: bytes | None = None,
        controls: Controls = NO_CONTROLS,
        **params: Any,
    ) -> Stream:
        """Writes everything but the request word: a burst can be prepared, and then start at one moment."""
        left = max(1, int(self.region.header["max_context"][0]) - len(prompt))
        told = params.get("logprob_words", 0), params.get("prompt_logprob_words", 0)
        words = len(prompt) + len(controls.words)
        size = Extent(words, min(max_tokens, left), told[0], told[1] * len(prompt))
        place = self._heaps.take(size) if self._free else None
        if place is None:
            self._collect()
            place = self._heaps.take(size) if self._free else None
        if place is None:
            raise RingError("all slots of the lease are in use, or there is no room in its heaps")
        slot = self._free.pop()
        sequence = ((int(self.region.progress["status"][slot]) & 0xFFFFFFFF) + 1) & 0xFFFFFFFF
        self._tickets += 1
        descriptor = np.zeros((), abi.Descriptor)
        values: dict[str, Any] = {"top_p": 1.0, "repetition_penalty": 1.0, **params}
        stop_ids = values.pop("stop_ids", ())
        for name, value in values.items():
            descriptor[name] = value
        for i, stop_id in enumerate(stop_ids):
            descriptor["stop_ids"][i] = stop_id
            descriptor["n_stop_ids"] = i + 1
        descriptor["sequence"], descriptor["epoch"] = sequence, self._epoch
        descriptor["prompt_tokens"], descriptor["max_tokens"] = len(prompt), max_tokens
        descriptor["ticket"] = self._tickets
        descriptor["prompt_offset"], descriptor["prompt_room"] = place.prompt_offset, place.prompt_room
        descriptor["output_offset"], descriptor["output_room"] = place.output_offset, place.output_room
        descriptor["n_biases"], descriptor["ban_words"] = controls.n_biases, controls.ban_words
        descriptor["flags"] |= np.uint32(controls.flags)
        grammar_at = self._write_grammar(grammar, descriptor) if grammar else None
        payload = np.concatenate([np.asarray(prompt, np.uint32), controls.words])
        covered = descriptor.tobytes()[: abi.Descriptor.fields["crc32c"][1]]  # type: ignore[index]
        descriptor["crc32c"] = crc32c(covered + payload.tobytes())
        self.region.prompts[self._lease, place.prompt_offset :][: len(payload)] = payload
        self.region.descriptors[slot] = descriptor
        return Stream(slot, sequence, place, grammar=grammar_at, told=told, prompt_tokens=len(prompt))

    def _write_grammar(self, grammar: bytes, descriptor: NDArray[np.void]) -> int:
        """Each request has its own, under a name of its own."""
        offset = self._heaps.prompts.take(len(grammar) // 4)
        if offset is None:
            raise RingError("there is no room for the grammar in the lease's heap of prompts")
        words = np.frombuffer(grammar, np.uint32)
        self.region.prompts[self._lease, offset:][: len(words)] = words
        descriptor["grammar_offset"], descriptor["grammar_words"] = offset, len(words)
        descriptor["grammar_name"], descriptor["grammar_crc32c"] = self._tickets, crc32c(grammar)
        return offset

    def start(self, stream: Stream) -> None:
        """Submits what `prepare` wrote."""
        self._command(stream.slot, stream.sequence, abi.Command.SUBMIT)

    def _command(self, slot: int, sequence: int, command: abi.Command) -> None:
        self.region.requests[slot] = request_word(sequence, command, self._epoch)

    def cancel(self, stream: Stream) -> None:
        self._command(stream.slot, stream.sequence, abi.Command.CANCEL)

    def poll(self, stream: Stream) -> int:
        """Takes the new records; how many there were. Releases the slot when the request has ended."""
        if stream.done:
            return 0
        status = Status.unpack(int(self.region.progress["status"][stream.slot]))
        if status.sequence != stream.sequence:
            return 0
        first, now = len(stream.tokens), time.monotonic()
        published = self.region.outputs[self._lease, stream.place.output_offset :][: status.count]
        records = published[first:].tolist()
        for position, record in enumerate(records, first):
            token = record & 0xFFFFFFFF
            if record != output_record(token, position, stream.sequence):
                raise RingError(f"slot {stream.slot}: record {position} is {record:#x}")
            stream.tokens.append(token)
            stream.times.append(now)
        if records:
            self._read_logprobs(stream)
        prefix = int(self.region.progress["prefix"][stream.slot])
        if records and prefix & 0xFFFFFFFF == stream.sequence:
            stream.cached = prefix >> 32
        if status.state == abi.State.DECODE_COMPLETED:
            stream.reason = status.reason
            self._command(stream.slot, stream.sequence, abi.Command.RELEASE)
            self._releasing.append(stream)
        return len(records)

    def _read_logprobs(self, stream: Stream) -> None:
        """All that is told of what has been published (ringbuffer/extents.h)."""
        words = self.region.outputs[self._lease, stream.place.output_offset + stream.place.output_room :]
        each, of_prompt = stream.told
        stream.logprobs = words[: each * len(stream.tokens)].reshape(-1, each).copy() if each else NONE_TOLD
        first = each * stream.place.output_room
        told = words[first : first + of_prompt * stream.prompt_tokens]
        stream.prompt_logprobs = told.reshape(-1, of_prompt).copy() if of_prompt else NONE_TOLD

    def wait(self, streams: Sequence[Stream], timeout_s: float) -> None:
        """Polls until all have ended. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while not all(stream.done for stream in streams):
            for stream in streams:
                self.poll(stream)
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{sum(not s.done for s in streams)} of {len(streams)} requests are still open"
                )
            time.sleep(POLL_S)

    def _collect(self) -> None:
        """Takes back the slots that the scheduler has emptied."""
        for stream in list(self._releasing):
            status = Status.unpack(int(self.region.progress["status"][stream.slot]))
            if status.sequence == stream.sequence and status.state == abi.State.EMPTY:
                self._releasing.remove(stream)
                self._free.append(stream.slot)
                self._heaps.give_back(stream.place)
                if stream.grammar is not None:
                    self._heaps.prompts.give_back(stream.grammar)

    def close(self) -> None:
        """Gives the lease back: the scheduler cancels what is open."""
        self._closing.set()
        self._thread.join()
        self.region.leases["word"][self._lease] = 0
