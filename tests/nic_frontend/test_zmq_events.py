"""KV events over ZeroMQ, read as vLLM's subscribers read them: with structs of msgspec like vLLM's own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq
from limits import WAIT_S
from waiting import wait_until

from nic_frontend.observe.public_blocks import Cleared, RemovedRun, StoredRun
from nic_frontend.observe.zmq_events import ZmqEvents

TOPIC = "kv@10.0.0.1@demo"


class Event(msgspec.Struct, omit_defaults=True, tag=True):
    pass


class BlockStored(Event):
    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None


class BlockRemoved(Event):
    block_hashes: list[int | bytes]
    medium: str | None


class AllBlocksCleared(Event):
    pass


class Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


@pytest.fixture
def places(tmp_path: Path) -> tuple[str, str]:
    return f"ipc://{tmp_path}/events", f"ipc://{tmp_path}/replay"


@pytest.fixture
def events(places: tuple[str, str]) -> Iterator[ZmqEvents]:
    found = ZmqEvents(places[0], TOPIC, places[1], block_size=2)
    yield found
    found.close()


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    found = zmq.Context()
    yield found
    found.destroy(linger=0)


def test_a_subscriber_reads_what_vllm_would_send(
    events: ZmqEvents, places: tuple[str, str], context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    subscriber = context.socket(zmq.SUB)
    subscriber.connect(places[0])
    subscriber.setsockopt_string(zmq.SUBSCRIBE, "kv@")
    sent = 0

    def arrives() -> int:  # a subscriber misses what is sent before it is connected
        nonlocal sent
        events.publish([Cleared([])])
        sent += 1
        return subscriber.poll(10)

    wait_until(arrives, WAIT_S, "a message")
    events.publish(
        [StoredRun(None, [2**64 - 1, 3], [1, 2, 3, 4]), StoredRun(3, [4], [5, 6]), RemovedRun([4])]
    )
    while True:
        topic, number, payload = subscriber.recv_multipart()
        if int.from_bytes(number, "big") == sent:
            break
    batch = msgspec.msgpack.decode(payload, type=Batch)
    assert topic.decode() == TOPIC
    assert abs(batch.ts - time.time()) < WAIT_S
    assert batch.data_parallel_rank == 0
    assert batch.events == [
        BlockStored([2**64 - 1, 3], None, [1, 2, 3, 4], 2, None, "GPU", None),
        BlockStored([4], 3, [5, 6], 2, None, "GPU", None),
        BlockRemoved([4], "GPU"),
    ]


def test_what_was_missed_is_replayed(
    events: ZmqEvents, places: tuple[str, str], context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    for block in range(4):
        events.publish([StoredRun(None, [block], [1, 2])])
    events.publish([])  # is no message
    asker = context.socket(zmq.DEALER)
    asker.connect(places[1])
    asker.send_multipart((b"", (2).to_bytes(8, "big")))
    events.answer_replays(WAIT_S)
    replies = [asker.recv_multipart() for _ in range(3)]
    assert [int.from_bytes(number, "big", signed=True) for _, number, _ in replies] == [2, 3, -1]
    first = msgspec.msgpack.decode(replies[0][2], type=Batch).events[0]
    assert isinstance(first, BlockStored)
    assert first.block_hashes == [2]
    asker.send_multipart((b"", b"no number"))
    events.answer_replays(WAIT_S)  # and nothing comes of it


def test_an_endpoint_that_cannot_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=str(tmp_path)):
        ZmqEvents(f"ipc://{tmp_path}/nowhere/events", TOPIC, None, 2)
