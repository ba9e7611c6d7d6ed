"""The ring in shared host memory, mapped.

The backend registers the same memory with CUDA; a frontend needs no CUDA at all.
"""

from __future__ import annotations

from pathlib import Path

from nic_frontend.transport.base import Capabilities, TransportError
from nic_frontend.transport.local import LOCAL_LEASE_TIMEOUT_NS, LocalLink
from ringbuffer.attachment import attach
from ringbuffer.name import RingError


class SharedMemory(LocalLink):
    """A Transport over a region file, usually in /dev/shm.

    Raises TransportError when there is no usable ring at `path`.
    """

    capabilities = Capabilities("shm", writes_ordered=True, lease_timeout_ns=LOCAL_LEASE_TIMEOUT_NS)

    def __init__(self, path: Path) -> None:
        try:
            self._region = attach(path)
        except RingError as error:
            raise TransportError(str(error)) from error
        super().__init__(path)
        self.link = self._native.blink_link_shared_memory(self._region.address)

    def reconnect(self) -> None:
        """A mapping is never down."""

    def close(self) -> None:
        if self.link:
            super().close()
            self._region.close()
