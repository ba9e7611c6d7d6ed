"""What Dynamo's router is told of a backend: the blocks of its prefix cache, and how full it is."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from nic_frontend.observe.kv_events import KvEventError, KvEventReader
from nic_frontend.observe.public_blocks import PublicBlocks, Run, StoredRun
from nic_frontend.transport.base import Transport, TransportError, read_header

if TYPE_CHECKING:
    from dynamo.llm import KvEventPublisher

log = logging.getLogger(__name__)

POLL_S = 0.01
LOAD_S = 0.1  # between two reports of the load
JOIN_S = 5.0  # for a report that is being sent

Load = Callable[[np.void], None]  # is given the ring's header


def batch_of(runs: list[Run]) -> list[dict[str, Any]]:
    """Runs as Dynamo's publisher takes them. It knows no event that clears."""
    found: list[dict[str, Any]] = []
    for run in runs:
        hashes = [signed(block) for block in run.hashes]
        if isinstance(run, StoredRun):
            size = len(run.token_ids) // len(hashes)
            found.append(
                {
                    "type": "stored",
                    "token_ids": run.token_ids,
                    "num_block_tokens": [size] * len(hashes),
                    "block_hashes": hashes,
                    "parent_hash": None if run.parent is None else signed(run.parent),
                }
            )
        elif hashes:
            found.append({"type": "removed", "block_hashes": hashes})
    return found


def signed(block_hash: int) -> int:
    """Dynamo takes hashes as signed 64-bit integers."""
    return block_hash - 2**64 if block_hash >= 2**63 else block_hash


class Reporter:
    """A thread that follows the ring behind `transport` and passes on what is new, until `stop`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._load: Load | None = None
        self._publisher: KvEventPublisher | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def report_load(self, load: Load) -> None:
        """Calls `load` from now on, several times a second."""
        self._load = load
        self._start()

    def report_blocks(self, publisher: KvEventPublisher) -> None:
        """Publishes the events of the prefix cache from now on."""
        self._publisher = publisher
        self._start()

    def _start(self) -> None:
        if self._thread is None and not self._stopping.is_set():
            self._thread = threading.Thread(target=self._run, name="blink-dynamo-reports", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        blocks = PublicBlocks()
        reader: KvEventReader | None = None
        next_load = time.monotonic()
        while not self._stopping.wait(POLL_S):
            try:
                if self._publisher is not None:
                    if reader is None:
                        reader = KvEventReader(self._transport)
                    if batch := batch_of(blocks.runs(reader.poll())):
                        self._publisher.publish_batch(batch)
                if self._load is not None and time.monotonic() >= next_load:
                    next_load = time.monotonic() + LOAD_S
                    self._load(read_header(self._transport))
            except TransportError:
                pass  # the connection is being made again
            except KvEventError as error:
                log.error("the router is not told of the prefix cache any more: %s", error)
                self._publisher = None
