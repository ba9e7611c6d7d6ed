"""The ring in GPU memory as its backend makes it; the GPU memory is host memory here (fake_cuda.c)."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_cuda import run

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

SCRIPT = """
import ctypes, os
import numpy as np
from gpu_backend.cuda.driver import Device
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.cuda.ring import GpuRing
from ringbuffer import abi, device_ring
from ringbuffer.name import RingError, owner_pid
from ringbuffer.attachment import attach
from ringbuffer.region import Geometry, ModelFacts

device = Device()
memory = DeviceMemory(device)
geometry = Geometry(32, 2, 16 * 8192, 16 * 64)
facts = ModelFacts(bytes(range(32)), "m", device.name, 1000, 2048, 8, 10, 16)
path = Path(sys.argv[1]) / "ring"
ring = GpuRing(memory, path, geometry, facts)

found = device_ring.read(path)
assert found.geometry == geometry
assert found.uuid == bytes([7]) * 16 == device.uuid()
assert found.handle == ring.address.to_bytes(8, "little") + bytes(56)
assert owner_pid(path) == os.getpid()
assert path.stat().st_mode & 0o777 == 0o600
try:
    attach(path)
except RingError as error:
    assert "its ring lies in GPU memory" in str(error)
else:
    raise AssertionError("mapped")

header = np.frombuffer((ctypes.c_char * abi.Header.itemsize).from_address(ring.address), abi.Header)
assert header["magic"][0] == abi.MAGIC
assert header["fingerprint"][0].tobytes() == bytes(range(32))
assert ring.phase() == abi.Phase.STARTING
header["phase"], header["fault"], header["fault_detail"] = abi.Phase.FAILED, 3, 719
header["stats"]["tokens"] = 12345
assert (ring.phase(), ring.fault(), ring.stats()["tokens"]) == (abi.Phase.FAILED, (3, 719), 12345)
header["phase"] = 99
assert ring.phase() == 99
before = header.tobytes()
ring.set_control(abi.Control.STOP)
assert header["control"][0] == abi.Control.STOP
header["control"] = 0
assert header.tobytes() == before  # nothing else was written
ring.close()
assert not path.exists()
memory.close()
device.close()
"""


def test_a_ring_in_gpu_memory(fake: Path, tmp_path: Path) -> None:
    log = run(fake, tmp_path, SCRIPT)[1]
    allocated = [int(words[2]) for words in log if words[0] == "alloc"]
    assert allocated
    assert all(size % (2 << 20) == 0 for size in allocated)  # its handle opens nothing else
    assert [words[0] for words in log].count("free") == len(allocated)
