"""A lease's lock is that of one process: those that are forked from it have no part in it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from forked import forked

from ringbuffer.lease_lock import LeaseLock


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    path = tmp_path / "ring"
    path.touch(mode=0o600)
    return path


def test_a_lease_is_free_when_its_holder_has_closed_it(ring: Path) -> None:
    """F1, where a child of the holder's lives on."""
    with closing(LeaseLock(ring)) as other, closing(LeaseLock(ring)) as lock:
        assert lock.claim_index(0)
        with forked():
            lock.close()
            assert other.claim_index(0)


def test_a_lease_stays_its_holders_when_a_child_has_ended(ring: Path) -> None:
    """And while it begins: what a child closes is its own."""
    with closing(LeaseLock(ring)) as other, closing(LeaseLock(ring)) as lock:
        assert lock.claim_index(0)
        with forked():
            assert not other.claim_index(0)
        assert not other.claim_index(0)
        assert lock.claim_index(1)
