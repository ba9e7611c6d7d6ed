"""Leases of frontends that have died: given back, and those of the living left alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ringbuffer.abandoned import give_back_abandoned
from ringbuffer.lease_lock import LeaseLock
from ringbuffer.name import RingError
from ringbuffer.region import Geometry, ModelFacts, Region, create
from ringbuffer.words import pair_word


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Region]:
    facts = ModelFacts(b"\0" * 32, "m", "test", 1000, 64, 8, 10, 16)
    region = create(tmp_path / "ring", Geometry(64, 4, 32, 16), facts)
    yield region
    region.close()


def test_only_what_the_dead_held_is_given_back(ring: Region) -> None:
    living, dead = LeaseLock(ring.path), LeaseLock(ring.path)
    assert living.claim_index(1)
    assert dead.claim_index(0)
    assert dead.claim_index(2)
    for index in range(3):
        ring.leases["word"][index] = pair_word(1, 7)
    dead.close()  # as the kernel does when the process dies
    assert give_back_abandoned(ring.path) == 2
    assert ring.leases["word"][:4].tolist() == [0, pair_word(1, 7), 0, 0]
    assert give_back_abandoned(ring.path) == 0
    living.close()


def test_a_lease_that_was_looked_at_is_free(ring: Region) -> None:
    ring.leases["word"][0] = pair_word(1, 7)
    give_back_abandoned(ring.path)
    lock = LeaseLock(ring.path)
    assert lock.claim(4) == 0
    lock.close()


def test_whether_a_backend_lives_is_known_by_its_lock(ring: Region) -> None:
    """R9: whatever else is locked."""
    lock = LeaseLock(ring.path)
    assert lock.claim(4) == 0
    assert lock.backend_lives()
    ring.close()
    assert not lock.backend_lives()
    lock.close()


def test_without_a_ring_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(RingError, match="no ring at"):
        give_back_abandoned(tmp_path / "none")
