"""The ring in GPU memory (paper section 4.2), for frontends that open it with CUDA IPC.

The backend fills in the header, tells in a file how to open the memory, and from then on only looks: with
copies on DeviceMemory's private stream, which wait for nothing that the scheduler does (C2).
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpu_backend.cuda.driver import call
from gpu_backend.cuda.memory import DeviceMemory
from ringbuffer import abi, device_ring
from ringbuffer.name import clear_name
from ringbuffer.region import Geometry, ModelFacts, header_record
from ringbuffer.words import member_of

# A smaller allocation may share its block with others, all of which the handle would open
# (cudaIpcGetMemHandle, "sub-allocated").
GRANULE = 2 << 20


class GpuRing:
    """A ring in `memory`, which owns the bytes; `close` removes the name. Raises RingError, CudaError."""

    def __init__(self, memory: DeviceMemory, path: Path, geometry: Geometry, facts: ModelFacts) -> None:
        clear_name(path)  # before anything is allocated
        self.geometry = geometry
        self._memory = memory
        header = header_record(geometry, facts)
        self.n_bytes = -(-geometry.offsets()["end"] // GRANULE) * GRANULE
        self.address = memory.allocate(self.n_bytes)
        memory.write(self.address, header.tobytes())
        handle = call("cuIpcGetMemHandle", self.address)
        opening = ctypes.string_at(handle.getPtr(), device_ring.HANDLE_BYTES)
        self._name = device_ring.write(path, header, memory.device.uuid(), opening)

    def set_control(self, control: abi.Control) -> None:
        self._memory.write(self.address + _at("control"), int(control).to_bytes(8, "little"))

    def phase(self) -> abi.Phase | int:
        return member_of(abi.Phase, int(self._look()["phase"]))

    def heartbeat(self) -> int:
        return int(self._look()["heartbeat"])

    def fault(self) -> tuple[int, int]:
        header = self._look()
        return int(header["fault"]), int(header["fault_detail"])

    def fail(self, fault: abi.Fault, detail: int) -> None:
        """Of a GPU that failed, no memory can be written: its frontends find the ring gone."""

    def stats(self) -> dict[str, int]:
        record = self._look()["stats"]
        return {name: int(record[name]) for name in abi.Stats.names or ()}

    def _look(self) -> np.void:
        raw = self._memory.read(self.address, abi.Header.itemsize)
        found: NDArray[np.void] = np.frombuffer(raw, abi.Header)
        return np.void(found[0])

    def close(self) -> None:
        self._name.close()


def _at(field: str) -> int:
    fields = abi.Header.fields
    assert fields is not None
    return int(fields[field][1])
