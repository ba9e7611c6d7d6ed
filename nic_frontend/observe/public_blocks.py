"""KV events as they may be passed on to routers: blocks that follow each other are put together, and
those of salted requests, whose prompts others may not know, are left out (ringbuffer/README.md, "KV events").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nic_frontend.observe.kv_events import BlockRemoved, BlockStored, KvEvent


@dataclass
class StoredRun:
    """Each block follows the one before; the first follows `parent`. All have as many tokens."""

    parent: int | None
    hashes: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)


@dataclass
class RemovedRun:
    hashes: list[int] = field(default_factory=list)


@dataclass
class Cleared:
    """All that was told is void; `hashes` are the blocks of which it told."""

    hashes: list[int]


Run = StoredRun | RemovedRun | Cleared


class PublicBlocks:
    """Events in, runs out. It remembers the blocks that it has told of."""

    def __init__(self) -> None:
        self._told: set[int] = set()

    def runs(self, events: Iterable[KvEvent]) -> list[Run]:
        found: list[Run] = []
        for event in events:
            if isinstance(event, BlockStored):
                if event.cache_salt is None:
                    self._store(found, event)
            elif isinstance(event, BlockRemoved):
                self._remove(found, event.block_hash)
            else:
                found.append(Cleared(sorted(self._told)))
                self._told.clear()
        return found

    def _store(self, found: list[Run], event: BlockStored) -> None:
        self._told.add(event.block_hash)
        run = found[-1] if found else None
        follows = isinstance(run, StoredRun) and run.hashes[-1] == event.parent_block_hash
        if not isinstance(run, StoredRun) or not follows:
            run = StoredRun(event.parent_block_hash)
            found.append(run)
        run.hashes.append(event.block_hash)
        run.token_ids += event.token_ids

    def _remove(self, found: list[Run], block: int) -> None:
        if block not in self._told:
            return
        self._told.remove(block)
        run = found[-1] if found else None
        if not isinstance(run, RemovedRun):
            run = RemovedRun()
            found.append(run)
        run.hashes.append(block)
