"""Events of the prefix cache as Dynamo's router takes them."""

from __future__ import annotations

import threading
from typing import Any

from limits import WAIT_S
from waiting import wait_until

from blink.dynamo.reports import Reporter, batch_of, signed
from nic_frontend.observe.public_blocks import Cleared, RemovedRun, StoredRun
from nic_frontend.transport.base import TransportError


def test_runs_are_dynamos_events_with_signed_hashes() -> None:
    runs = [Cleared([7]), StoredRun(None, [2**64 - 2, 2**64 - 1], [1, 2, 3, 4]), RemovedRun([2**64 - 1])]
    runs.append(StoredRun(2**64 - 2, [5], [6, 7]))
    assert batch_of(runs) == [
        {"type": "removed", "block_hashes": [7]},
        {
            "type": "stored",
            "token_ids": [1, 2, 3, 4],
            "num_block_tokens": [2, 2],
            "block_hashes": [-2, -1],
            "parent_hash": None,
        },
        {"type": "removed", "block_hashes": [-1]},
        {
            "type": "stored",
            "token_ids": [6, 7],
            "num_block_tokens": [2],
            "block_hashes": [5],
            "parent_hash": -2,
        },
    ]
    assert batch_of([Cleared([])]) == []


def test_hashes_are_signed() -> None:
    assert [signed(block) for block in (0, 2**63 - 1, 2**63, 2**64 - 1)] == [0, 2**63 - 1, -(2**63), -1]


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
