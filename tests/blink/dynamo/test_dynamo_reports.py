"""Events of the prefix cache as Dynamo's router takes them."""

from __future__ import annotations

import threading
from typing import Any

from limits import WAIT_S
from waiting import wait_until

from blink.dynamo.reports import BlockReports, Reporter, signed
from nic_frontend.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from nic_frontend.transport.base import TransportError

SALT = bytes(range(16))


def stored(block: int, parent: int | None = None, salt: bytes | None = None) -> BlockStored:
    return BlockStored(block, parent, (block, block + 1), salt)


def test_blocks_that_follow_each_other_are_one_event() -> None:
    batch = BlockReports().batch([stored(1), stored(2, 1), stored(3, 2), stored(4, 2), stored(9)])
    assert [event["block_hashes"] for event in batch] == [[1, 2, 3], [4], [9]]
    assert [event["parent_hash"] for event in batch] == [None, 2, None]
    assert batch[0]["token_ids"] == [1, 2, 2, 3, 3, 4]
    assert batch[0]["num_block_tokens"] == [2, 2, 2]


def test_removals_keep_their_place_among_what_is_stored() -> None:
    batch = BlockReports().batch([stored(1), BlockRemoved(1), stored(1), stored(2, 1)])
    assert [(event["type"], event["block_hashes"]) for event in batch] == [
        ("stored", [1]),
        ("removed", [1]),
        ("stored", [1, 2]),
    ]


def test_salted_blocks_are_told_to_nobody() -> None:
    reports = BlockReports()
    assert reports.batch([stored(1, salt=SALT), stored(2, 1, SALT), BlockRemoved(2), BlockRemoved(1)]) == []
    assert reports.batch([AllBlocksCleared()]) == []


def test_what_was_told_is_taken_back_when_all_is_told_anew() -> None:
    reports = BlockReports()
    reports.batch([stored(1), stored(2, 1)])
    (removed, again) = reports.batch([AllBlocksCleared(), stored(1)])
    assert sorted(removed["block_hashes"]) == [1, 2]
    assert again["block_hashes"] == [1]
    assert reports.batch([BlockRemoved(2)]) == []


def test_hashes_are_signed() -> None:
    assert [signed(block) for block in (0, 2**63 - 1, 2**63, 2**64 - 1)] == [0, 2**63 - 1, -(2**63), -1]
    batch = BlockReports().batch([stored(2**64 - 2), stored(2**64 - 1, 2**64 - 2)])
    assert batch[0]["block_hashes"] == [-2, -1]


class BrokenLink:
    """A transport whose connection is down at first."""

    def __init__(self) -> None:
        self.reads = 0

    def read(self, offset: int, n_bytes: int) -> bytes:
        self.reads += 1
        if self.reads < 3:
            raise TransportError("down")
        return bytes(n_bytes)


def test_reports_go_on_when_the_connection_was_down() -> None:
    transport: Any = BrokenLink()
    told = threading.Event()
    reporter = Reporter(transport)
    reporter.report_load(lambda header: told.set())
    wait_until(told.is_set, WAIT_S, "a report")
    reporter.stop()
    reads = transport.reads
    assert not told.wait(0) or transport.reads == reads
