"""The minimal frontend keeps to its lease: to its slots, to its parts of the heaps, and to its time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringbuffer import abi
from ringbuffer.client import RingClient, Stream
from ringbuffer.extents import controls
from ringbuffer.name import RingError
from ringbuffer.region import Geometry, ModelFacts, Region, create
from ringbuffer.words import Status, pair_word

FACTS = ModelFacts(b"\0" * 32, "m", "test", 1000, 4096, 8, 64, 16)
GEOMETRY = Geometry(48, 3, 2048, 1024)
LEASE = 1  # there is another's on either side
FOREIGN = 0xA5


@pytest.fixture
def region(tmp_path: Path) -> Iterator[Region]:
    """A ring in which the parts of the other leases have been written."""
    region = create(tmp_path / "ring", GEOMETRY, FACTS)
    for part in others(region):
        part.view(np.uint8)[:] = FOREIGN
    yield region
    region.close()


@pytest.fixture
def attach(region: Region) -> Iterator[Callable[[int], RingClient]]:
    """Makes clients, which are granted their leases."""
    ended, clients = threading.Event(), list[RingClient]()

    def grant() -> None:
        while not ended.wait(0.001):
            asked = int(region.leases["word"][LEASE]) & 0xFFFFFFFF
            if asked > int(region.lease_acks["word"][LEASE]) & 0xFFFFFFFF:
                region.lease_acks["word"][LEASE] = pair_word(asked, abi.LeaseState.GRANTED)

    def make(lease: int) -> RingClient:
        clients.append(RingClient(region, lease))
        return clients[-1]

    thread = threading.Thread(target=grant)
    thread.start()
    yield make
    for client in clients:
        client.close()
    ended.set()
    thread.join()


@pytest.fixture
def client(attach: Callable[[int], RingClient]) -> RingClient:
    return attach(LEASE)


def others(region: Region) -> list[np.ndarray[Any, Any]]:
    """What belongs to the other leases."""
    leases = [lease for lease in range(GEOMETRY.n_leases) if lease != LEASE]
    found = []
    for lease in leases:
        slots = GEOMETRY.lease_slots(lease)
        own = slice(slots.start, slots.stop)
        found += [region.requests[own], region.descriptors[own], region.prompts[lease]]
        found += [region.leases[lease : lease + 1]]
    return found


def submit_all(client: RingClient) -> list[Stream]:
    """Requests of all kinds, until there is no room for more."""
    streams: list[Stream] = []
    with pytest.raises(RingError, match="all slots of the lease are in use, or there is no room"):
        streams.extend(submit(client, i) for i in range(GEOMETRY.n_slots))
    return streams


def submit(client: RingClient, i: int) -> Stream:
    """The request of one kind of many."""
    changes = controls(FACTS.vocab_size, range(5) if i % 2 else None, {3: 1.0}, [[4, 5]])
    grammar = bytes(4 * (1 + 7 * i % 40)) if i % 3 else None
    told = {"logprob_words": i % 3, "prompt_logprob_words": i % 2}
    return client.submit([5] * (1 + i % 7), 1 + 5 * (i % 4), grammar, changes, **told)


def give_back(client: RingClient, stream: Stream) -> None:
    """Plays the scheduler, which has ended and emptied the request."""
    progress = client.region.progress["status"]
    progress[stream.slot] = Status(stream.sequence, abi.State.DECODE_COMPLETED, abi.Reason.LENGTH, 0).pack()
    client.poll(stream)
    progress[stream.slot] = Status(stream.sequence, abi.State.EMPTY, abi.Reason.NONE, 0).pack()


def test_it_writes_nothing_outside_its_lease(region: Region, client: RingClient) -> None:
    """R5."""
    streams = submit_all(client)
    assert len(streams) > 5
    assert all(np.all(part.view(np.uint8) == FOREIGN) for part in others(region))


def test_ranges_lie_in_its_heaps_and_are_one_requests_alone(region: Region, client: RingClient) -> None:
    """R5."""
    used = {"prompt": np.zeros(GEOMETRY.prompt_heap, int), "output": np.zeros(GEOMETRY.output_heap, int)}
    streams = submit_all(client)
    assert {stream.slot for stream in streams} <= set(GEOMETRY.lease_slots(LEASE))
    for stream in streams:
        d = region.descriptors[stream.slot]
        words = d["output_room"] * (1 + d["logprob_words"]) + d["prompt_logprob_words"] * d["prompt_tokens"]
        ranges = [("prompt", d["prompt_offset"], d["prompt_room"]), ("output", d["output_offset"], words)]
        ranges.append(("prompt", d["grammar_offset"], d["grammar_words"]))
        for heap, offset, length in ranges:
            assert offset + length <= len(used[heap])
            used[heap][offset : offset + length] += 1
    assert max(map(np.max, used.values())) == 1


@pytest.mark.parametrize(
    ("arguments", "params"),
    [
        (([5] * 2049, 1), {}),
        (([5] * 2000, 1, bytes(4 * 64)), {}),
        (([5], 1025), {}),
        (([5], 600), {"logprob_words": 1}),
        (([5] * 300, 1), {"prompt_logprob_words": 4}),
    ],
)
def test_what_is_larger_than_its_heaps_is_refused_and_takes_nothing(
    client: RingClient, arguments: tuple[Any, ...], params: dict[str, int]
) -> None:
    with pytest.raises(RingError, match="the lease's heaps have 2048 and 1024"):
        client.submit(*arguments, **params)
    client.submit([5] * 2048, 1024)


def test_a_grammar_without_room_takes_nothing(client: RingClient) -> None:
    first = client.submit([5] * 1024, 1)
    for _ in range(20):  # more than there are slots
        with pytest.raises(RingError, match="no room"):
            client.submit([5] * 1000, 1, bytes(4 * 64))
    give_back(client, first)
    client.submit([5] * 1000, 1, bytes(4 * 64))


@pytest.mark.parametrize("field", ["prompt_offset", "output_room", "grammar_words", "epoch", "sequence"])
def test_no_caller_says_where_a_request_lies_or_whose_it_is(client: RingClient, field: str) -> None:
    with pytest.raises(RingError, match=f"the client itself sets {field}"):
        client.submit([5], 1, **{field: 1})


@pytest.mark.parametrize("lease", [-1, 3])
def test_a_lease_that_there_is_not_is_refused(region: Region, lease: int) -> None:
    with pytest.raises(RingError, match=f"there is no lease {lease}: the ring has 3"):
        RingClient(region, lease)


def test_it_writes_nothing_once_its_lease_is_lost(
    region: Region, client: RingClient, attach: Callable[[int], RingClient]
) -> None:
    """F4: whoever has the lease then keeps it."""
    stream = client.submit([5], 1)
    attach(LEASE)
    held, word = int(region.lease_acks["word"][LEASE]), int(region.requests[stream.slot])
    for call in (lambda: client.cancel(stream), lambda: client.submit([5], 1)):
        with pytest.raises(RingError, match="lease 1 was lost"):
            call()
    end = time.monotonic() + 3 * abi.LEASE_BEAT_NS / 1e9
    while time.monotonic() < end:
        assert int(region.leases["word"][LEASE]) & 0xFFFFFFFF == held & 0xFFFFFFFF
    client.close()
    assert int(region.leases["word"][LEASE]) & 0xFFFFFFFF == held & 0xFFFFFFFF
    assert int(region.requests[stream.slot]) == word
