"""A frontend in one page: attaches, submits, reads tokens. For tests and benchmarks, and as an example.

It serves one process and a few hundred requests; the real frontend is nic_frontend/. It writes to the slots
and to the parts of the heaps of its lease alone (R5), and to nothing once that is lost (F4). Stores and loads
of words are plain aligned numpy accesses, so it runs on x86-64 only (R2).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringbuffer import abi
from ringbuffer.crc32c import crc32c
from ringbuffer.extents import NO_CONTROLS, Controls
from ringbuffer.heap import Extent, LeaseHeaps, Place
from ringbuffer.name import RingError
from ringbuffer.region import Region
from ringbuffer.words import Status, output_record, pair_word, request_word

GRANT_S = 5.0
POLL_S = 0.0005
NONE_TOLD = np.zeros((0, 0), np.uint64)
# Fields of a descriptor that say whose request it is, how long, and where it lies: no caller gives them.
OWN_FIELDS = frozenset(
    {
        "sequence", "epoch", "ticket", "prompt_tokens", "prompt_offset", "prompt_room", "output_offset",
        "output_room", "n_biases", "ban_words", "n_processors", "grammar_offset", "grammar_words",
        "grammar_name", "grammar_crc32c", "crc32c",
    }
)  # fmt: skip


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
    """Holds a lease of `region` from creation to `close`.

    Raises RingError when there is no such lease, or it is not granted in time. Nobody else may hold it: there
    is no lock (F1).
    """

    def __init__(self, region: Region, lease: int = 0) -> None:
        if not 0 <= lease < region.geometry.n_leases:
            raise RingError(f"there is no lease {lease}: the ring has {region.geometry.n_leases}")
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
        self._asking = True
        self._beat()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + GRANT_S
        while not self._granted():
            if time.monotonic() > deadline:
                self._closing.set()
                raise RingError(
                    f"lease {lease} was not granted within {GRANT_S:.0f} s: is the scheduler alive?"
                )
            time.sleep(POLL_S)
        self._asking = False

    def _granted(self) -> bool:
        granted = pair_word(self._epoch, abi.LeaseState.GRANTED)
        return int(self.region.lease_acks["word"][self._lease]) == granted

    def _beat(self) -> None:
        self._beats += 1
        self.region.leases["word"][self._lease] = pair_word(self._epoch, self._beats)

    def _keep(self) -> None:
        while not self._closing.wait(abi.LEASE_BEAT_NS / 2e9):
            if self._asking or self._granted():
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

        Raises RingError when no slot is free, when the request has no room in the lease's heaps or is larger
        than they are, when `params` has one of OWN_FIELDS, and when the lease is lost.
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
        self._check_held()
        if own := sorted(OWN_FIELDS & params.keys()):
            raise RingError(f"the client itself sets {', '.join(own)}")
        left = max(1, int(self.region.header["max_context"][0]) - len(prompt))
        told = params.get("logprob_words", 0), params.get("prompt_logprob_words", 0)
        payload = np.concatenate([np.asarray(prompt, np.uint32), controls.words])
        size = Extent(len(payload), min(max_tokens, left), told[0], told[1] * len(prompt))
        grammar_words = np.frombuffer(grammar or b"", np.uint32)
        descriptor = np.zeros((), abi.Descriptor)
        values: dict[str, Any] = {"top_p": 1.0, "repetition_penalty": 1.0, **params}
        stop_ids = values.pop("stop_ids", ())
        for name, value in values.items():
            descriptor[name] = value
        for i, stop_id in enumerate(stop_ids):
            descriptor["stop_ids"][i] = stop_id
            descriptor["n_stop_ids"] = i + 1
        slot, place, grammar_at = self._take(size, len(grammar_words))
        sequence = ((int(self.region.progress["status"][slot]) & 0xFFFFFFFF) + 1) & 0xFFFFFFFF
        self._tickets += 1
        descriptor["sequence"], descriptor["epoch"] = sequence, self._epoch
        descriptor["prompt_tokens"], descriptor["max_tokens"] = len(prompt), max_tokens
        descriptor["ticket"] = self._tickets
        descriptor["prompt_offset"], descriptor["prompt_room"] = place.prompt_offset, place.prompt_room
        descriptor["output_offset"], descriptor["output_room"] = place.output_offset, place.output_room
        for name in ("n_biases", "ban_words", "n_processors"):
            descriptor[name] = getattr(controls, name)
        descriptor["flags"] |= np.uint32(controls.flags)
        if grammar_at is not None:  # each request has its own grammar, under a name of its own
            descriptor["grammar_offset"], descriptor["grammar_words"] = grammar_at, len(grammar_words)
            descriptor["grammar_name"], descriptor["grammar_crc32c"] = self._tickets, crc32c(grammar or b"")
            self._write_prompts(grammar_at, grammar_words)
        covered = descriptor.tobytes()[: abi.Descriptor.fields["crc32c"][1]]  # type: ignore[index]
        descriptor["crc32c"] = crc32c(covered + payload.tobytes())
        self._write_prompts(place.prompt_offset, payload)
        self.region.descriptors[slot] = descriptor
        return Stream(slot, sequence, place, grammar=grammar_at, told=told, prompt_tokens=len(prompt))

    def _take(self, size: Extent, grammar_words: int) -> tuple[int, Place, int | None]:
        """A slot, a place in the heaps, and one for the grammar if it has words. Raises RingError, and has
        taken nothing then."""
        prompts, outputs = self._heaps.prompts, self._heaps.outputs
        prompt_words, output_words = self._heaps.rooms(size)
        prompt_words += prompts.rounded(grammar_words) if grammar_words else 0
        if prompt_words > prompts.size or output_words > outputs.size:
            raise RingError(
                f"the request takes {prompt_words} words for its prompt and {output_words} for its answer, "
                f"the lease's heaps have {prompts.size} and {outputs.size}"
            )
        taken = self._try_take(size, grammar_words)
        if taken is None:
            self._collect()
            taken = self._try_take(size, grammar_words)
        if taken is None:
            raise RingError("all slots of the lease are in use, or there is no room in its heaps")
        return taken

    def _try_take(self, size: Extent, grammar_words: int) -> tuple[int, Place, int | None] | None:
        place = self._heaps.take(size) if self._free else None
        if place is None:
            return None
        grammar_at = self._heaps.prompts.take(grammar_words) if grammar_words else None
        if grammar_words and grammar_at is None:
            self._heaps.give_back(place)
            return None
        return self._free.pop(), place, grammar_at

    def _write_prompts(self, offset: int, words: NDArray[np.uint32]) -> None:
        self.region.prompts[self._lease, offset : offset + len(words)] = words

    def start(self, stream: Stream) -> None:
        """Submits what `prepare` wrote."""
        self._command(stream.slot, stream.sequence, abi.Command.SUBMIT)

    def _check_held(self) -> None:
        if not self._granted():
            raise RingError(f"lease {self._lease} was lost")

    def _command(self, slot: int, sequence: int, command: abi.Command) -> None:
        self._check_held()
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
        if self._granted():
            self.region.leases["word"][self._lease] = 0
