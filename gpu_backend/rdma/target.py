"""libblink_rdma.so through ctypes (target.h documents it): the registered ring and its queue pairs."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ringbuffer.rdma.abi import RdmaAddress
from ringbuffer.rdma.messages import EndpointAddress
from ringbuffer.rdma.native import ERROR_BYTES, from_native, load, to_native

PATH = Path(__file__).parent.with_name("libblink_rdma.so")


@cache
def rdma_library() -> ctypes.CDLL:
    """The library, loaded once. Raises VerbsMissing."""
    found = load(PATH)
    p, text = ctypes.c_void_p, ctypes.c_char_p
    i32, u32, u64 = ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64
    address = ctypes.POINTER(RdmaAddress)
    prototypes: dict[str, tuple[object, list[object]]] = {
        "blink_rdma_open": (p, [text, i32, text, p, u64, text]),
        "blink_rdma_open_dmabuf": (p, [text, i32, text, i32, u64, u64, text]),
        "blink_rdma_close": (None, [p]),
        "blink_rdma_region_address": (u64, [p]),
        "blink_rdma_region_key": (u32, [p]),
        "blink_rdma_accept": (p, [p, address, address, text]),
        "blink_rdma_pairs_close": (None, [p]),
    }
    for name, (result, arguments) in prototypes.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


@dataclass(frozen=True)
class ExportedMemory:
    """A ring in GPU memory (gpu_memory.py). `descriptor` is its dma-buf's. `read_back_needed`: see V3."""

    descriptor: int
    n_bytes: int
    read_back_needed: bool


class Pairs:
    """The passive end of one frontend's queue pairs. `close` destroys them (V4)."""

    def __init__(self, handle: int, address: EndpointAddress) -> None:
        self._handle = handle
        self.address = address

    def close(self) -> None:
        rdma_library().blink_rdma_pairs_close(self._handle)


class RegisteredRing:
    """The ring as a memory region of one RDMA device: all of it and nothing else (V8). Its pairs are closed
    before it is.
    """

    def __init__(self, handle: int, n_bytes: int, read_back_needed: bool) -> None:
        self._handle = handle
        self.bytes = n_bytes
        self.address: int = rdma_library().blink_rdma_region_address(handle)
        self.key: int = rdma_library().blink_rdma_region_key(handle)
        self.read_back_needed = read_back_needed

    def accept(self, peer: EndpointAddress) -> Pairs:
        """Raises OSError when the device cannot reach `peer`."""
        error = ctypes.create_string_buffer(ERROR_BYTES)
        ours = RdmaAddress()
        handle = rdma_library().blink_rdma_accept(self._handle, to_native(peer), ours, error)
        if not handle:
            raise OSError(error.value.decode())
        return Pairs(handle, from_native(ours))

    def close(self) -> None:
        rdma_library().blink_rdma_close(self._handle)


def register_host_memory(address: int, n_bytes: int, device: tuple[bytes, int, bytes]) -> RegisteredRing:
    """Registers a mapped ring with the device that `device_choice` describes. The processor's memory orders
    the device's writes: no READ between payload and word is needed there (V3).

    Raises OSError when there is no such device or the memory cannot be pinned.
    """
    error = ctypes.create_string_buffer(ERROR_BYTES)
    handle = rdma_library().blink_rdma_open(*device, address, n_bytes, error)
    if not handle:
        raise OSError(error.value.decode())
    return RegisteredRing(handle, n_bytes, read_back_needed=False)


def register_dmabuf(memory: ExportedMemory, device: tuple[bytes, int, bytes]) -> RegisteredRing:
    """Registers GPU memory that was exported as a dma-buf, from its first byte (ibv_reg_dmabuf_mr(3)).

    The descriptor stays the caller's, who may close it then. Has run over a fake of libibverbs alone: it
    needs a GPU and an RDMA device in one machine. Raises OSError as `register_host_memory`.
    """
    error = ctypes.create_string_buffer(ERROR_BYTES)
    handle = rdma_library().blink_rdma_open_dmabuf(*device, memory.descriptor, 0, memory.n_bytes, error)
    if not handle:
        raise OSError(error.value.decode())
    return RegisteredRing(handle, memory.n_bytes, memory.read_back_needed)
