"""A ring in the GPU memory of a driver whose memory is a file (fake_driver.c), and requests over it."""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from harness import wait_until

from nic_frontend.transport import cuda_ipc
from nic_frontend.transport.cuda_ipc import CudaIpc
from ringbuffer import abi, device_ring
from ringbuffer.name import RingName
from ringbuffer.region import Geometry, ModelFacts, Region, create

__all__ = ["driver", "driver_path", "make_ring", "ring"]

COPY = abi.COPY_ENGINE_BYTES
ROOM = COPY // 4 + 32  # tokens that a slot's prompt has of the heap here: more than a padded copy
FACTS = ModelFacts(b"\0" * 32, "m", "test", 1 << 30, 8192, 8, 10, 16)
SECOND_GPU = b"\2" * 16  # of the fake's two, the one that can write 64-bit values


@pytest.fixture(scope="session")
def driver_path(build_program: Callable[..., Path]) -> Path:
    flags = ["-shared", "-fPIC", "-O1", "-Werror"]
    return build_program("libcuda.so.1", ["tests/nic_frontend/cuda_ipc/fake_driver.c"], *flags)


@pytest.fixture
def driver(driver_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ctypes.CDLL]:
    """The fake driver, in place of libcuda. No test may misuse it."""
    monkeypatch.setattr(cuda_ipc, "DRIVER", str(driver_path))
    fake = ctypes.CDLL(str(driver_path))
    fake.fake_log.restype = ctypes.c_char_p
    fake.fake_clear()
    yield fake
    fake.fake_end()
    assert ctypes.c_uint.in_dll(fake, "fake_misuses").value == 0


def log(driver: ctypes.CDLL) -> list[tuple[str, int, int]]:
    """What was put on the streams to the device: copies (offset, bytes), batches (last offset, count)."""
    lines = [line.split() for line in driver.fake_log().decode().splitlines()]
    return [(kind, int(offset), int(n)) for kind, offset, n in lines]


def expose(region: Region) -> RingName:
    """The file of a ring in GPU memory, whose memory is this region."""
    path = region.path.with_name(f"{region.path.name}-gpu")
    handle = str(region.path).encode().ljust(64, b"\0")
    return device_ring.write(path, region.header.copy(), SECOND_GPU, handle)


Ring = tuple[Region, CudaIpc]
MakeRing = Callable[..., Ring]


@pytest.fixture
def make_ring(driver: ctypes.CDLL) -> Iterator[MakeRing]:
    made: list[tuple[Ring, RingName]] = []

    def make(n_slots: int = 16, prompt_heap: int = 16 * ROOM, n_leases: int = 1) -> Ring:
        path = Path(f"/dev/shm/blink-test-{uuid.uuid4().hex[:12]}")
        region = create(path, Geometry(n_slots, n_leases, prompt_heap, 256), FACTS)
        name = expose(region)
        ring = region, CudaIpc(name.path)
        made.append((ring, name))
        driver.fake_clear()
        return ring

    yield make
    for (region, transport), name in made:
        transport.close()
        name.close()
        region.close()


@pytest.fixture
def ring(make_ring: MakeRing) -> Ring:
    return make_ring()


WORDS = abi.Descriptor.itemsize // 4


def submit(ring: Ring, slot: int, prompt: np.ndarray, sequence: int, room: int = ROOM) -> None:
    """As the token reader does: prompt, descriptor, word. Every word of the descriptor is the sequence."""
    region, transport = ring
    header = region.header[0]
    descriptor = np.full(WORDS, sequence, np.uint32)
    at = int(header["prompts_offset"]) + slot * room * 4
    transport.write(at, prompt.tobytes(), room * 4)
    transport.write(int(header["descriptors_offset"]) + slot * WORDS * 4, descriptor.tobytes())
    transport.publish(int(header["requests_offset"]) + slot * 8, sequence)


def prompt_of(region: Region, slot: int, room: int = ROOM) -> np.ndarray:
    """The slot's range of the only lease's prompts."""
    return region.prompts[0, slot * room : (slot + 1) * room]


def arrived(region: Region, slot: int, sequence: int) -> None:
    wait_until(lambda: int(region.requests[slot]) == sequence)


def tokens(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 32, n, dtype=np.uint32)
