"""The names of rings of backends that processes have for themselves; a killed one's is taken over."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import forked
from serve_process import ROOT

from blink import ring_claim
from blink.errors import CommandError
from blink.ring_claim import RingClaim
from nic_frontend.ring.host_segment import segment_path
from ringbuffer.name import RingName
from ringbuffer.region import ring_path

HOLD = """
import sys
from blink.ring_claim import RingClaim
print(RingClaim(sys.argv[1], "workers").name, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def prefix() -> Iterator[str]:
    """Of names that no other test and no process of this machine has."""
    prefix = f"test-claim-{os.getpid()}"
    yield prefix
    for left in Path("/dev/shm").glob(f"blink-{prefix}-*"):
        left.unlink()


def killed_worker(prefix: str) -> str:
    """The name that a worker had which was killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, prefix], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as worker:
        assert worker.stdout is not None
        name = worker.stdout.readline().decode().strip()
        worker.kill()
    return name


def test_each_worker_has_a_name_of_its_own(prefix: str) -> None:
    first, second = RingClaim(prefix, "workers"), RingClaim(prefix, "workers")
    assert [first.name, second.name] == [f"{prefix}-0", f"{prefix}-1"]
    first.release()
    third = RingClaim(prefix, "workers")
    assert third.name == f"{prefix}-0"
    for claim in (second, third):
        claim.release()
    assert list(Path("/dev/shm").glob(f"blink-{prefix}-*")) == []


def test_a_name_is_free_when_a_child_of_its_worker_lives_on(prefix: str) -> None:
    first = RingClaim(prefix, "workers")
    name = first.name
    with forked():
        first._descriptor.close()  # as when the worker is killed: its file stays
        second = RingClaim(prefix, "workers")
        assert second.name == name
    second.release()


def test_what_a_killed_worker_left_is_removed_by_the_next(prefix: str) -> None:
    name = killed_worker(prefix)
    ring = ring_path(name)
    for left in (ring, segment_path(ring)):
        left.touch(mode=0o600)
    claim = RingClaim(prefix, "workers")
    assert claim.name == name
    assert not ring.exists()
    assert not segment_path(ring).exists()
    claim.release()


def test_a_backend_that_outlives_its_worker_keeps_its_ring(prefix: str) -> None:
    """It lets open requests finish."""
    name = killed_worker(prefix)
    with contextlib.closing(RingName(ring_path(name))) as backend:
        backend.publish()
        claim = RingClaim(prefix, "workers")
        assert claim.name == f"{prefix}-1"
        assert ring_path(name).exists()
        claim.release()


def test_too_many_workers_are_refused(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_claim, "MOST", 2)
    claims = [RingClaim(prefix, "workers"), RingClaim(prefix, "workers")]
    with pytest.raises(CommandError, match="2 workers run on this host"):
        RingClaim(prefix, "workers")
    for claim in claims:
        claim.release()
