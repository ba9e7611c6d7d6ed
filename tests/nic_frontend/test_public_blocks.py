"""KV events as they are passed on to routers."""

from __future__ import annotations

from nic_frontend.observe.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from nic_frontend.observe.public_blocks import Cleared, PublicBlocks, RemovedRun, StoredRun

SALT = bytes(range(16))


def stored(block: int, parent: int | None = None, salt: bytes | None = None) -> BlockStored:
    return BlockStored(block, parent, (block, block + 1), salt)


def test_blocks_that_follow_each_other_are_one_run() -> None:
    runs = PublicBlocks().runs([stored(1), stored(2, 1), stored(3, 2), stored(4, 2), stored(9)])
    assert runs == [
        StoredRun(None, [1, 2, 3], [1, 2, 2, 3, 3, 4]),
        StoredRun(2, [4], [4, 5]),
        StoredRun(None, [9], [9, 10]),
    ]


def test_removals_keep_their_place_among_what_is_stored() -> None:
    events = [stored(1), stored(5), BlockRemoved(1), BlockRemoved(5), stored(1), stored(2, 1)]
    assert PublicBlocks().runs(events) == [
        StoredRun(None, [1], [1, 2]),
        StoredRun(None, [5], [5, 6]),
        RemovedRun([1, 5]),
        StoredRun(None, [1, 2], [1, 2, 2, 3]),
    ]


def test_salted_blocks_are_told_to_nobody() -> None:
    blocks = PublicBlocks()
    events = [stored(1, salt=SALT), stored(2, 1, SALT), BlockRemoved(2), BlockRemoved(1)]
    assert blocks.runs(events) == []
    assert blocks.runs([AllBlocksCleared()]) == [Cleared([])]


def test_what_was_told_is_named_when_all_is_told_anew() -> None:
    blocks = PublicBlocks()
    blocks.runs([stored(1), stored(2, 1)])
    assert blocks.runs([AllBlocksCleared(), stored(1)]) == [Cleared([1, 2]), StoredRun(None, [1], [1, 2])]
    assert blocks.runs([BlockRemoved(2)]) == []
