"""A ring in GPU memory as an RDMA device is given it. The GPU memory, and what stands for its dma-buf, are
host memory here (fake_cuda.c).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_cuda import Log, run

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

DMA_BUF_SUPPORTED, WRITES_ORDERING = "FAKE_CUDA_ATTRIBUTE_124", "FAKE_CUDA_ATTRIBUTE_118"

# A GPU's device, and a ring in its memory, between the memory's other allocations.
RING = """
import os
from contextlib import ExitStack
from gpu_backend.devices.base import DeviceError
from gpu_backend.devices.gpu import GpuServingDevice
from gpu_backend.engines.native.builder import NativeEngineBuilder
from ringbuffer.region import Geometry, ModelFacts

def descriptors():
    return set(os.listdir("/proc/self/fd"))

device = GpuServingDevice(0, NativeEngineBuilder())
owned = ExitStack()
facts = ModelFacts(bytes(range(32)), "m", device.name, 1000, 2048, 8, 10, 16)
path = Path(sys.argv[1]) / "ring"
device.memory.allocate(1000)
ring, address = device.make_ring("cuda_ipc", path, Geometry(32, 2, 16 * 8192, 16 * 64), facts, owned)
device.memory.allocate(1000)
"""

END = """
owned.close()
device.close()
"""


def of(log: Log, kind: str) -> list[list[int]]:
    return [[int(word) for word in words[1:]] for words in log if words[0] == kind]


def test_the_dma_buf_is_the_ring_and_nothing_else(fake: Path, tmp_path: Path) -> None:
    """V8. What is written through one of them is read through the other."""
    script = """
import mmap
from ringbuffer import abi

exported = device.export_ring(ring)
assert exported.n_bytes == ring.n_bytes == os.fstat(exported.descriptor).st_size
assert exported.n_bytes >= ring.geometry.offsets()["end"]
assert not os.get_inheritable(exported.descriptor)  # only who is given it
seen = mmap.mmap(exported.descriptor, exported.n_bytes)
assert int.from_bytes(seen[:8], "little") == abi.MAGIC
ring.set_control(abi.Control.STOP)
at = abi.Header.fields["control"][1]
assert seen[at] == abi.Control.STOP
seen[at] = abi.Control.DRAIN
assert device.memory.read(address + at, 1)[0] == abi.Control.DRAIN
print(address)
"""
    out, log = run(fake, tmp_path, RING + script + END)
    address = int(out)
    (n_bytes,) = [size for at, size in of(log, "alloc") if at == address]
    assert of(log, "export") == [[address, n_bytes]]
    assert address % 4096 == n_bytes % 4096 == 0
    # Before the memory is given away: its copies by this process must not run beside the device's accesses.
    assert of(log, "sync_memops") == [[address, 1]]
    names = [words[0] for words in log]
    assert names.index("sync_memops") < names.index("export")


@pytest.mark.parametrize(("ordering", "needed"), [(0, True), (99, True), (100, False), (200, False)])
def test_a_gpu_that_does_not_order_remote_writes_needs_the_read_back(
    ordering: int, needed: bool, fake: Path, tmp_path: Path
) -> None:
    """V3: from CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER on, the GPU itself sees remote writes in order."""
    script = "print(device.export_ring(ring).read_back_needed)\n"
    out, _ = run(fake, tmp_path, RING + script + END, **{WRITES_ORDERING: str(ordering)})
    assert out == f"{needed}\n"


REFUSED = """
before = descriptors()
try:
    device.export_ring(ring)
except DeviceError as error:
    print(error)
assert descriptors() == before
"""


def test_a_gpu_without_dma_bufs_is_refused_before_anything_is_done(fake: Path, tmp_path: Path) -> None:
    out, log = run(fake, tmp_path, RING + REFUSED + END, **{DMA_BUF_SUPPORTED: "0"})
    assert out == (
        "cannot offer the ring in GPU memory to other hosts: Fake GPU cannot export memory as a dma-buf: use "
        "the driver's open kernel modules on Linux 5.12 or later, or serve from --transport shm\n"
    )
    assert not of(log, "sync_memops")


def test_a_driver_that_exports_nothing_is_told_of(fake: Path, tmp_path: Path) -> None:
    out, _ = run(fake, tmp_path, RING + REFUSED + END, FAKE_CUDA_NO_EXPORT="1")
    why = "cuMemGetHandleForAddressRange: CUDA_ERROR_NOT_SUPPORTED (a fake error)"
    assert out == f"cannot offer the ring in GPU memory to other hosts: {why}\n"


def test_a_ring_in_host_memory_is_not_exported(fake: Path, tmp_path: Path) -> None:
    script = """
owned.close()
ring, address = device.make_ring("shm", path, ring.geometry, facts, owned)
print(device.export_ring(ring))
"""
    out, log = run(fake, tmp_path, RING + script + END)
    assert out == "None\n"
    assert not of(log, "export")


@pytest.mark.parametrize("supported", [0, 1])
def test_the_probe_asks_for_what_the_export_needs(supported: int, fake: Path, tmp_path: Path) -> None:
    """GPUDirect RDMA by another way than dma-bufs, nvidia-peermem, is of no use to a backend."""
    script = """
from gpu_backend.cuda.probe import probe
for finding in probe():
    print(finding.ok, finding.name, finding.mend, sep="|")
"""
    out, _ = run(fake, tmp_path, script, **{DMA_BUF_SUPPORTED: str(supported)})
    (line,) = [line for line in out.splitlines() if line.split("|")[1] == "GPUDirect RDMA"]
    assert line.startswith(f"{bool(supported)}|")
