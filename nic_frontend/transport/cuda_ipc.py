"""The ring in GPU memory, opened with CUDA IPC by another process of its host (native/cuda_ipc_link.cpp).

Needs the NVIDIA driver's libcuda.so.1 on the frontend's side, and no other part of CUDA.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from nic_frontend.transport.base import Capabilities, TransportError
from nic_frontend.transport.local import LOCAL_LEASE_TIMEOUT_NS, LocalLink
from ringbuffer import abi, device_ring
from ringbuffer.name import RingError

DRIVER = "libcuda.so.1"
ERROR_BYTES = 512
DOWN = "the GPU that holds the ring failed or hangs: restart this frontend once it is back"


class CudaIpc(LocalLink):
    """A Transport to the ring whose file is at `path` (ringbuffer/device_ring.py).

    Raises TransportError when there is none, or this process cannot open the GPU's memory.
    """

    capabilities = Capabilities(
        "cuda_ipc",
        writes_ordered=True,
        lease_timeout_ns=LOCAL_LEASE_TIMEOUT_NS,
        least_copy=abi.COPY_ENGINE_BYTES,
    )

    def __init__(self, path: Path) -> None:
        try:
            ring = device_ring.read(path)
        except RingError as error:
            raise TransportError(str(error)) from error
        if ring is None:
            raise TransportError(
                f"no ring in GPU memory at {path}: start `blink backend --transport cuda_ipc` with its name"
            )
        super().__init__(path)
        why = ctypes.create_string_buffer(ERROR_BYTES)
        self.link = (
            self._native.blink_link_cuda_ipc(DRIVER.encode(), ring.uuid, ring.handle, why, ERROR_BYTES) or 0
        )
        if not self.link:
            self.close()
            raise TransportError(f"the transport cuda_ipc: {why.value.decode(errors='replace')}")

    def _why_down(self) -> str:
        return DOWN

    def reconnect(self) -> None:
        """Never succeeds: after an error of the GPU, a process's CUDA context stays unusable."""
        raise TransportError(DOWN)
