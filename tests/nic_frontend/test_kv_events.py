"""The reader of KV events, over a log that the test writes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nic_frontend.observe.kv_events import (
    NO_SALT,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    KvEvent,
    KvEventError,
    KvEventReader,
    block_hash,
)
from nic_frontend.transport.shm import SharedMemory
from ringbuffer import abi
from ringbuffer.abi import KvEventKind
from ringbuffer.region import Geometry, ModelFacts, Region, create, event_record_bytes
from ringbuffer.words import event_word, unpack_event_word

PAGE_SIZE = 3  # odd: the last token has half a word
CAPACITY = 8
FACTS = ModelFacts(bytes(32), "a model", "cpu", 1000, 64, 8, 64, PAGE_SIZE)


class Log:
    """What the scheduler does: it takes a reader's word, and writes records for it while there is room."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.attachment = self.written = 0

    def observe(self) -> None:
        attachment, _ = unpack_event_word(int(self.region.kv_events["reader"][0]))
        if attachment != self.attachment:
            self.attachment, self.written = attachment, 0
            self._publish()

    def room(self) -> int:
        return CAPACITY - (self.written - unpack_event_word(int(self.region.kv_events["reader"][0]))[1])

    def write(
        self,
        kind: KvEventKind,
        block: int = 0,
        parent: int = abi.NO_BLOCK,
        tokens: tuple[int, ...] = (0,) * PAGE_SIZE,
        salt: bytes = NO_SALT,
    ) -> None:
        assert self.room() > 0
        record = np.zeros((), abi.KvEvent)
        record["word"], record["kind"] = event_word(self.attachment, self.written), int(kind)
        record["block"], record["parent"] = block, parent
        record["salt"] = np.frombuffer(salt, np.uint64)
        raw = record.tobytes() + np.array(tokens, np.uint32).tobytes()
        self.region.kv_event_records[self.written % CAPACITY, : len(raw)] = np.frombuffer(raw, np.uint8)
        self.written += 1
        self._publish()

    def _publish(self) -> None:
        self.region.kv_events["written"][0] = event_word(self.attachment, self.written)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    region = create(
        tmp_path / "ring", Geometry(16, 1, 512, 512, CAPACITY, event_record_bytes(PAGE_SIZE)), FACTS
    )
    yield Log(region)
    region.close()


@pytest.fixture
def transport(log: Log) -> Iterator[SharedMemory]:
    transport = SharedMemory(log.region.path)
    yield transport
    transport.close()


def attached(log: Log, transport: SharedMemory, complete: bool = True) -> KvEventReader:
    reader = KvEventReader(transport)
    log.observe()
    log.write(KvEventKind.CLEARED)
    if complete:
        log.write(KvEventKind.COMPLETE)
    assert reader.poll() == [AllBlocksCleared()]
    return reader


def tokens_of(number: int) -> tuple[int, int, int]:
    return (number, number + 1, number + 2)


def hash_of(*numbers: int, salt: bytes = NO_SALT) -> int:
    """Of the chain of blocks with these tokens_of."""
    found = None
    for number in numbers:
        found = block_hash(found, salt, np.array(tokens_of(number), np.uint32))
    assert found is not None
    return found


def test_a_block_is_told_with_its_chain(log: Log, transport: SharedMemory) -> None:
    reader = attached(log, transport)
    log.write(KvEventKind.STORED, 5, tokens=tokens_of(1))
    log.write(KvEventKind.STORED, 9, parent=5, tokens=tokens_of(2))
    assert reader.poll() == [
        BlockStored(hash_of(1), None, tokens_of(1), None),
        BlockStored(hash_of(1, 2), hash_of(1), tokens_of(2), None),
    ]
    assert reader.poll() == []
    assert len(reader) == 2


def test_the_hash_is_that_of_the_salt_and_all_tokens() -> None:
    """It must stay what it is: routers compare those of several backends. Worked out with hashlib by hand."""
    assert hash_of(1, 2) == 0x2FD3FC2626FE1F71
    assert len({hash_of(1, 2), hash_of(2), hash_of(3, 2), hash_of(1, 2, salt=b"salt" * 4)}) == 4


def test_a_salted_block_says_so(log: Log, transport: SharedMemory) -> None:
    reader = attached(log, transport)
    salt = bytes(range(16))
    log.write(KvEventKind.STORED, 5, tokens=tokens_of(1), salt=salt)
    assert reader.poll() == [BlockStored(hash_of(1, salt=salt), None, tokens_of(1), salt)]


def test_a_removed_block_takes_those_behind_it_along(log: Log, transport: SharedMemory) -> None:
    reader = attached(log, transport)
    for block, parent in ((1, abi.NO_BLOCK), (2, 1), (3, 2), (4, 1)):
        log.write(KvEventKind.STORED, block, parent, tokens_of(block))
    reader.poll()
    log.write(KvEventKind.REMOVED, 2)
    assert reader.poll() == [BlockRemoved(hash_of(1, 2, 3)), BlockRemoved(hash_of(1, 2))]
    log.write(KvEventKind.REMOVED, 3)  # the scheduler evicts it only now
    log.write(KvEventKind.STORED, 7, 2, tokens_of(7))  # nobody finds it
    log.write(KvEventKind.STORED, 8, 1, tokens_of(2))
    assert reader.poll() == [BlockStored(hash_of(1, 2), hash_of(1), tokens_of(2), None)]
    assert len(reader) == 3


@pytest.mark.parametrize("seed", range(20))
def test_what_is_told_anew_comes_behind_its_parent(log: Log, transport: SharedMemory, seed: int) -> None:
    """In whatever order the scheduler comes across the pages; orphans are never told."""
    rng = random.Random(seed)
    parents = {1: abi.NO_BLOCK, 2: 1, 3: 2, 4: 2, 5: 4, 6: 1, 7: abi.NO_BLOCK, 8: 7, 20: 99, 21: 20}
    records = [(KvEventKind.STORED, block, parent) for block, parent in parents.items()]
    rng.shuffle(records)
    at = next(i for i, record in enumerate(records) if record[1] == 4)
    records.insert(rng.randint(at + 1, len(records)), (KvEventKind.REMOVED, 4, abi.NO_BLOCK))
    reader = attached(log, transport, complete=False)
    events: list[KvEvent] = []
    for kind, block, parent in [*records, (KvEventKind.COMPLETE, 0, abi.NO_BLOCK)]:
        assert not reader.complete
        log.write(kind, block, parent, tokens_of(block))
        events += reader.poll()
    assert reader.complete
    there: set[int] = set()
    for event in events:
        if isinstance(event, BlockStored):
            assert event.parent_block_hash in {None, *there}
            there.add(event.block_hash)
        else:
            assert isinstance(event, BlockRemoved)
            there.remove(event.block_hash)
    assert there == {hash_of(*chain) for chain in ((1,), (1, 2), (1, 2, 3), (1, 6), (7,), (7, 8))}
    assert len(reader) == 6


def test_records_go_round_and_their_room_is_given_back(log: Log, transport: SharedMemory) -> None:
    reader = attached(log, transport)
    stored: list[KvEvent] = []
    for block in range(100):
        log.write(KvEventKind.STORED, block, tokens=tokens_of(block))
        if log.room() == 0:
            stored += reader.poll()
            assert log.room() == CAPACITY
    stored += reader.poll()
    assert [event.block_hash for event in stored if isinstance(event, BlockStored)] == [
        hash_of(block) for block in range(100)
    ]


def test_nothing_is_read_before_the_scheduler_has_seen_the_reader(log: Log, transport: SharedMemory) -> None:
    first = attached(log, transport)
    log.write(KvEventKind.STORED, 1, tokens=tokens_of(1))
    reader = KvEventReader(transport)
    assert reader.poll() == []
    log.observe()
    assert reader.poll() == []
    log.write(KvEventKind.CLEARED)
    assert reader.poll() == [AllBlocksCleared()]
    with pytest.raises(KvEventError, match="another reader"):
        first.poll()


def test_a_closed_reader_leaves_a_word_that_says_nobody(log: Log, transport: SharedMemory) -> None:
    first = attached(log, transport)
    second = KvEventReader(transport)
    first.close()  # no longer its own
    log.observe()
    assert log.attachment != 0
    second.close()
    log.observe()
    assert log.attachment == 0


def test_a_backend_without_events_is_refused(tmp_path: Path) -> None:
    region = create(tmp_path / "ring", Geometry(16, 1, 512, 512), FACTS)
    transport = SharedMemory(region.path)
    with pytest.raises(KvEventError, match="--kv-events"):
        KvEventReader(transport)
    transport.close()
    region.close()
