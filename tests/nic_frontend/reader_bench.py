"""A ring, a granted lease and a token reader; the test plays the scheduler, word by word."""

from __future__ import annotations

import select
from pathlib import Path

import numpy as np
from limits import WAIT_S
from numpy.typing import NDArray

from nic_frontend.options import FrontendOptions
from nic_frontend.ring.lease import Lease
from nic_frontend.ring.token_reader import TokenReader
from nic_frontend.transport.shm import SharedMemory
from ringbuffer import abi
from ringbuffer.abi import Command, LeaseState, Phase, Reason, State
from ringbuffer.region import Geometry, ModelFacts, Region, create
from ringbuffer.words import Status, output_record, pair_word

N_SLOTS = 32
PROMPT = 64  # tokens of a slot
CAPACITY = 4096  # records of a slot; of all slots they are twice what the queue holds
Event = tuple[int, int, int, int, list[int]]  # slot, sequence, kind, reason, tokens


class Bench:
    """A ring, a granted lease and a reader; the test plays the scheduler."""

    def __init__(self, path: Path, n_leases: int = 1, lease: int = 0) -> None:
        facts = ModelFacts(b"\0" * 32, "m", "test", 1 << 30, 8192, 8, 10, 16)
        geometry = Geometry(N_SLOTS * n_leases, n_leases, N_SLOTS * PROMPT, N_SLOTS * CAPACITY)
        self.region: Region = create(path, geometry, facts)
        self.region.header["phase"][0] = Phase.SERVING
        self.transport = SharedMemory(path)
        self.others = [SharedMemory(path) for _ in range(lease)]  # frontends that hold the leases before
        assert [other.claim_lease(n_leases) for other in self.others] == list(range(lease))
        self.lease = Lease(self.transport)
        self.lease.ask(1.0)
        self.grant()
        assert self.lease.granted()
        self.first = self.lease.index * N_SLOTS
        self.reader = TokenReader(
            self.transport, self.lease, FrontendOptions(ring=path, model_dir=path, poll_max_us=100.0)
        )
        self.reader.open()
        self.cached: dict[tuple[int, int], list[int]] = {}  # what each event said, by slot and sequence

    def grant(self) -> None:
        ack = pair_word(self.lease.epoch, LeaseState.GRANTED)
        self.region.lease_acks["word"][self.lease.index] = ack

    def submit(self, *slots: int, prompt: tuple[int, ...] = (5, 6, 7)) -> list[int]:
        descriptors = np.zeros(len(slots), dtype=abi.Descriptor)
        descriptors["prompt_tokens"] = len(prompt)
        descriptors["prompt_offset"] = [slot * PROMPT for slot in slots]
        descriptors["prompt_room"] = PROMPT
        descriptors["output_offset"] = [slot * CAPACITY for slot in slots]
        descriptors["output_room"] = CAPACITY
        prompts = np.tile(np.array(prompt, dtype=np.uint32), len(slots))
        assert self.reader.submit(np.array(slots, dtype=np.uint32), descriptors, prompts)
        return [int(sequence) for sequence in descriptors["sequence"]]

    def status(
        self, slot: int, sequence: int, state: State, count: int, reason: Reason = Reason.NONE
    ) -> None:
        self.region.progress["status"][self.first + slot] = Status(sequence, state, reason, count).pack()

    def record(self, slot: int, token: int, position: int, sequence: int, where: str = "both") -> None:
        word = output_record(token, position, sequence)
        if where != "inline":
            self.output(slot)[position] = word
        if where != "arena":
            self.region.progress["records"][self.first + slot, position % abi.INLINE_RECORDS] = word

    def prompt(self, slot: int) -> NDArray[np.uint32]:
        """The prompt's range of the slot, as `submit` gives it out."""
        return self.region.prompts[self.lease.index, slot * PROMPT : (slot + 1) * PROMPT]

    def output(self, slot: int) -> NDArray[np.uint64]:
        """Likewise of the answer."""
        return self.region.outputs[self.lease.index, slot * CAPACITY : (slot + 1) * CAPACITY]

    def request(self, slot: int) -> tuple[int, Command]:
        word = int(self.region.requests[self.first + slot])
        assert word >> 40 == self.lease.epoch
        return word & 0xFFFFFFFF, Command((word >> 32) & 0xFF)

    def take(self, timeout_s: float = WAIT_S) -> list[Event]:
        """Waits for the eventfd, then drains: slot, sequence, kind, reason, tokens.

        Empty after the timeout.
        """
        if not select.select([self.reader.descriptor], [], [], timeout_s)[0]:
            return []
        found, more = [], True
        while more:
            rows, tokens, more = self.reader.drain()
            at = 0
            for slot, sequence, n, kind, reason, cached, _ in rows:
                self.cached.setdefault((slot, sequence), []).append(cached)
                found.append((slot, sequence, kind, reason, tokens[at : at + n]))
                at += n
        return found

    def close(self) -> None:
        self.reader.close()
        for transport in (self.transport, *self.others):
            transport.close()
        self.region.close()
