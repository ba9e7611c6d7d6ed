"""The ring in shared host memory, mapped.

The backend registers the same memory with CUDA; a frontend needs no CUDA at all.
"""

from __future__ import annotations

from pathlib import Path

from nic_frontend.transport.base import (
    LOCAL_LEASE_TIMEOUT_NS,
    Capabilities,
    NativeLink,
    TransportError,
)
from ringbuffer.attachment import attach
from ringbuffer.lease_lock import LeaseLock
from ringbuffer.name import RingError


class SharedMemory(NativeLink):
    """A Transport over a region file, usually in /dev/shm.

    Raises TransportError when there is no usable ring at `path`.
    """

    capabilities = Capabilities("shm", writes_ordered=True, lease_timeout_ns=LOCAL_LEASE_TIMEOUT_NS)

    def __init__(self, path: Path) -> None:
        super().__init__()
        try:
            self._region = attach(path)
            self._lock = LeaseLock(path)
        except (RingError, FileNotFoundError) as error:
            raise TransportError(str(error)) from error
        self.link: int = self._native.blink_link_shared_memory(self._region.address)

    def claim_lease(self, n_leases: int) -> int | None:
        return self._lock.claim(n_leases)

    def is_outdated(self) -> bool:
        return self._lock.is_outdated()

    def backend_lives(self) -> bool:
        return self._lock.backend_lives()

    def reconnect(self) -> None:
        """A mapping is never down."""

    def close(self) -> None:
        if self.link:
            self._native.blink_link_close(self.link)
            self.link = 0
            self._lock.close()
            self._region.close()
