"""What the ways to a ring of this host share: the ring's file, whose locks say who holds a lease, and whether
the backend lives."""

from __future__ import annotations

from pathlib import Path

from nic_frontend.transport.base import NativeLink, TransportError
from ringbuffer import abi
from ringbuffer.lease_lock import LeaseLock
from ringbuffer.name import RingError

# A frontend of the backend's host that stands still is suspended, swapped out or starved, and comes back to
# streams that are still in the ring. One that dies leaves its slots taken until its successor attaches.
LOCAL_LEASE_TIMEOUT_NS = 10_000_000_000
assert LOCAL_LEASE_TIMEOUT_NS <= abi.LONGEST_LEASE_NS


class LocalLink(NativeLink):
    """A NativeLink to the ring whose file is at `path`. Who derives from it opens `link`.

    Raises TransportError when there is no such file.
    """

    link = 0

    def __init__(self, path: Path) -> None:
        super().__init__()
        try:
            self._lock = LeaseLock(path)
        except (RingError, FileNotFoundError) as error:
            raise TransportError(str(error)) from error

    def claim_lease(self, n_leases: int) -> int | None:
        return self._lock.claim(n_leases)

    def is_outdated(self) -> bool:
        return self._lock.is_outdated()

    def backend_lives(self) -> bool:
        return self._lock.backend_lives()

    def close(self) -> None:
        if self.link:
            self._native.blink_link_close(self.link)
            self.link = 0
        self._lock.close()  # last: the next holder of the lease writes to the ring
