"""The KV events of a real scheduler, followed by a reader that comes late or sleeps."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from limits import WAIT_S
from waiting import wait_until

from blink.model_directory import demo_directory
from gpu_backend.backend import Backend
from gpu_backend.options import BackendOptions
from nic_frontend.observe.kv_events import (
    NO_SALT,
    AllBlocksCleared,
    BlockStored,
    KvEvent,
    KvEventReader,
    block_hash,
)
from nic_frontend.transport.shm import SharedMemory
from ringbuffer.abi import RequestFlags
from ringbuffer.client import RingClient
from ringbuffer.region import Region


class Served:
    """The demo model behind a log of so few records that bursts do not fit."""

    def __init__(self, records: int, pages: int | None = None) -> None:
        self.path = Path(f"/dev/shm/blink-test-{uuid.uuid4().hex[:12]}")
        page_bytes = (
            2 * 4 * 6 * 2 * 64 * 16
        )  # of the demo model: two, fp32, layers, KV heads, dimension, tokens
        options = BackendOptions(
            demo_directory(), ring=str(self.path), device="cpu", slots=16, max_batch=4, kv_events=records,
            kv_memory=pages * page_bytes if pages else None,
        )  # fmt: skip
        self.backend = Backend(options)
        self.backend.start()
        assert isinstance(self.backend.ring, Region)
        self.client = RingClient(self.backend.ring)
        self.transport = SharedMemory(self.path)

    def ask(self, prompt: list[int], answer: int = 1) -> list[int]:
        """The tokens whose keys and values are there then: of the answer all but the last."""
        stream = self.client.submit(prompt, answer, flags=RequestFlags.IGNORE_EOS)
        self.client.wait([stream], WAIT_S)
        return prompt + stream.tokens[:-1]

    def close(self) -> None:
        self.transport.close()
        self.client.close()
        assert self.backend.stop(0.0)


def follow(reader: KvEventReader, there: dict[int, BlockStored], until: list[int]) -> list[KvEvent]:
    """Applies what is told to `there` until these blocks are in it and nothing more comes."""
    events: list[KvEvent] = []

    def followed() -> bool:
        found = reader.poll()
        for event in found:
            if isinstance(event, AllBlocksCleared):
                there.clear()
            elif isinstance(event, BlockStored):
                there[event.block_hash] = event
            else:
                del there[event.block_hash]
        events.extend(found)
        return not found and reader.complete and set(until) <= set(there)

    wait_until(followed, WAIT_S, f"{len(until)} blocks")
    return events


def chain(prompt: list[int]) -> list[int]:
    """Hashes of the full pages of 16 tokens."""
    found: list[int] = []
    for at in range(0, len(prompt) - len(prompt) % 16, 16):
        tokens = np.array(prompt[at : at + 16], np.uint32)
        found.append(block_hash(found[-1] if found else None, NO_SALT, tokens))
    return found


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    served = Served(*request.param)
    yield served
    served.close()


@pytest.mark.parametrize("served", [(64,), (3,)], indirect=True)
def test_what_the_scheduler_computes_is_followed(served: Served) -> None:
    """A reader that comes late knows what was there, and then what comes, whole prompts and their answers."""
    rng = random.Random(3)
    first = [rng.randrange(300, 900) for _ in range(70)]
    served.ask(first)
    reader, there = KvEventReader(served.transport), dict[int, BlockStored]()
    follow(reader, there, chain(first))
    assert list(there) == chain(first)
    second = first[:40] + [rng.randrange(300, 900) for _ in range(40)]
    answered = served.ask(second, answer=20)
    events = follow(reader, there, chain(answered))  # the log may have room for the last only later
    assert len(there) == len(reader) == 4 + 3 + 1  # one is of the answer
    assert not any(isinstance(event, AllBlocksCleared) for event in events)
    assert {*there} > {*chain(first), *chain(second)}
    assert [event.block_hash for event in events if isinstance(event, BlockStored)][:3] == chain(second)[2:]
    assert there[chain(second)[2]].parent_block_hash == chain(first)[1]
    served.ask(second)  # all of it was there: the next to be told is another prompt's
    third = [rng.randrange(300, 900) for _ in range(16)]
    served.ask(third)
    (event,) = follow(reader, there, chain(third))
    assert isinstance(event, BlockStored)
    assert [event.block_hash] == chain(third)


@pytest.mark.slow
@pytest.mark.parametrize("served", [(2, 32)], indirect=True)
def test_a_reader_that_slept_through_an_overflow_knows_what_is_left(served: Served) -> None:
    """The queue has 1024 places: a reader that stands still while more happens is told everything anew."""
    reader, there = KvEventReader(served.transport), dict[int, BlockStored]()
    follow(reader, there, [])
    rng, last = random.Random(4), [0]
    state = served.backend.setup.state
    for _ in range(60):
        last = [rng.randrange(300, 900) for _ in range(480)]
        served.ask(last)
        if not state()["kv_events"]["following"]:
            break
    assert not state()["kv_events"]["following"]
    events = follow(reader, there, chain(last))
    assert any(isinstance(event, AllBlocksCleared) for event in events)
    assert len(there) == len(reader) <= 32
