"""Device memory and host memory that the device can reach."""

from __future__ import annotations

import ctypes
import threading

from gpu_backend.cuda.driver import Device, Stream, api, call

STAGING_BYTES = 16 << 20


class DeviceMemory:
    """GPU memory of one owner (gpu_backend.engines.base.Memory); addresses are device addresses. Thread-safe.

    Copies go through pinned staging on a private non-blocking stream, so `read` and `write` work while the
    scheduler runs; everything else does not (C2).
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        device.make_current()
        self._stream = Stream()
        self._staging = int(call("cuMemHostAlloc", STAGING_BYTES, 0))
        self._allocations: list[int] = []
        self._registered: list[int] = []
        self._lock = threading.Lock()
        self._open = True

    def allocate(self, n_bytes: int) -> int:
        """Address of `n_bytes` zeroed bytes, aligned to 256. Raises CudaError CUDA_ERROR_OUT_OF_MEMORY."""
        with self._lock:
            self.device.make_current()
            address = int(call("cuMemAlloc", max(n_bytes, 1)))
            self._allocations.append(address)
            call("cuMemsetD8Async", address, 0, max(n_bytes, 1), self._stream.handle)
            self._stream.synchronize()
            return address

    def write(self, address: int, data: bytes | memoryview) -> None:
        """Copies `data` (C-contiguous) to `address`; done when it returns."""
        source = memoryview(data).cast("B")
        with self._lock:
            self.device.make_current()
            for start in range(0, len(source), STAGING_BYTES):
                part = source[start : start + STAGING_BYTES]
                staging = (ctypes.c_char * len(part)).from_address(self._staging)
                memoryview(staging).cast("B")[:] = part
                call("cuMemcpyHtoDAsync", address + start, self._staging, len(part), self._stream.handle)
                self._stream.synchronize()

    def read(self, address: int, n_bytes: int) -> bytes:
        """A copy of `n_bytes` bytes at `address`."""
        out = bytearray(n_bytes)
        with self._lock:
            self.device.make_current()
            for start in range(0, n_bytes, STAGING_BYTES):
                size = min(STAGING_BYTES, n_bytes - start)
                call("cuMemcpyDtoHAsync", self._staging, address + start, size, self._stream.handle)
                self._stream.synchronize()
                out[start : start + size] = ctypes.string_at(self._staging, size)
        return bytes(out)

    def register_host(self, address: int, n_bytes: int) -> int:
        """Page-locks host memory (a shared mapping of the ring) and maps it; its device address."""
        with self._lock:
            self.device.make_current()
            driver = api()
            call(
                "cuMemHostRegister",
                address,
                n_bytes,
                driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP,
            )
            self._registered.append(address)
            return int(call("cuMemHostGetDevicePointer", address, 0))

    def unregister_host(self, address: int) -> None:
        """Undoes register_host, before the memory is unmapped."""
        with self._lock:
            self.device.make_current()
            self._registered.remove(address)
            call("cuMemHostUnregister", address)

    def close(self) -> None:
        """Frees everything; the scheduler must have ended (C2)."""
        if not self._open:
            return
        self._open = False
        self.device.make_current()
        for address in self._registered:
            call("cuMemHostUnregister", address)
        for address in self._allocations:
            call("cuMemFree", address)
        call("cuMemFreeHost", self._staging)
        self._stream.close()


class PinnedMemory:
    """Page-locked host memory of one owner (gpu_backend.engines.base.Memory): copies run beside the host."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._allocations: list[int] = []

    def allocate(self, n_bytes: int) -> int:
        """Address of `n_bytes` zeroed bytes, on a page of its own. Raises CudaError."""
        self._device.make_current()
        address = int(call("cuMemHostAlloc", max(n_bytes, 1), 0))
        self._allocations.append(address)
        ctypes.memset(address, 0, max(n_bytes, 1))
        return address

    def write(self, address: int, data: bytes | memoryview) -> None:
        ctypes.memmove(address, bytes(data), len(data))

    def read(self, address: int, n_bytes: int) -> bytes:
        return ctypes.string_at(address, n_bytes)

    def close(self) -> None:
        """Frees everything; no copy may be in flight."""
        self._device.make_current()
        for address in self._allocations:
            call("cuMemFreeHost", address)
        self._allocations.clear()
