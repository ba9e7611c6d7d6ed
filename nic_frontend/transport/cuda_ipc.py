"""The ring in GPU memory, opened with CUDA IPC by another process of its host (native/cuda_ipc_link.cpp).

Needs the NVIDIA driver's libcuda.so.1 on the frontend's side, and no other part of CUDA.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from nic_frontend.library import library
from nic_frontend.transport.base import Capabilities, TransportError
from ringbuffer import device_ring
from ringbuffer.lease_lock import LeaseLock
from ringbuffer.region import RingError

DRIVER = "libcuda.so.1"
ERROR_BYTES = 512
DOWN = "the GPU that holds the ring failed or hangs: restart this frontend once it is back"


class CudaIpc:
    """A Transport to the ring whose file is at `path` (ringbuffer/device_ring.py).

    Raises TransportError when there is none, or this process cannot open the GPU's memory.
    """

    capabilities = Capabilities("cuda_ipc", writes_ordered=True)

    def __init__(self, path: Path) -> None:
        self._native = library()
        try:
            ring = device_ring.read(path)
        except RingError as error:
            raise TransportError(str(error)) from error
        if ring is None:
            raise TransportError(
                f"no ring in GPU memory at {path}: start `blink backend --transport cuda_ipc` with its name"
            )
        why = ctypes.create_string_buffer(ERROR_BYTES)
        self.link: int = (
            self._native.blink_link_cuda_ipc(DRIVER.encode(), ring.uuid, ring.handle, why, ERROR_BYTES) or 0
        )
        if not self.link:
            raise TransportError(f"the transport cuda_ipc: {why.value.decode(errors='replace')}")
        self._lock = LeaseLock(path)

    def read(self, offset: int, n_bytes: int) -> bytes:
        buffer = ctypes.create_string_buffer(n_bytes)
        if self._native.blink_link_read(self.link, offset, buffer, n_bytes):
            raise TransportError(DOWN)
        return buffer.raw

    def write(self, offset: int, payload: bytes) -> None:
        self._native.blink_link_write(self.link, offset, payload, len(payload))

    def publish(self, offset: int, word: int) -> None:
        self._native.blink_link_publish(self.link, offset, word)

    def claim_lease(self, n_leases: int) -> int | None:
        return self._lock.claim(n_leases)

    def reconnect(self) -> None:
        """Never succeeds: after an error of the GPU, a process's CUDA context stays unusable."""
        raise TransportError(DOWN)

    def close(self) -> None:
        if self.link:
            self._native.blink_link_close(self.link)
            self.link = 0
            self._lock.close()
