"""A ring that is registered as a dma-buf, as one in GPU memory is. The file of a mock backend's ring
stands for the dma-buf.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Frontend, StartBackend, StartFrontend
from mock_backend import MockBackend
from remote_ring import ANY_DEVICE, Remote, expected
from sse import events, text_of

from gpu_backend.rdma.target import ExportedMemory, RegisteredRing, register_dmabuf
from nic_frontend.options import VerbsRing
from nic_frontend.transport.base import TransportError

READ, WRITE, LOCAL = 1 << 2, 1 << 1, 1  # IBV_ACCESS_REMOTE_READ and _WRITE, IBV_ACCESS_LOCAL_WRITE


class Region(ctypes.Structure):
    """struct fake_verbs_region."""

    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("address", "bytes", "file", "file_offset", "access")
    )


def region_of(fabric: ctypes.CDLL, key: int) -> Region | None:
    found = Region()
    return found if fabric.fake_verbs_region(key, ctypes.byref(found)) else None


def registered(backend: MockBackend, read_back_needed: bool) -> RegisteredRing:
    """The descriptor is closed as soon as the ring is registered."""
    descriptor = os.open(backend.path, os.O_RDWR)
    try:
        memory = ExportedMemory(descriptor, backend.region.n_bytes, read_back_needed)
        return register_dmabuf(memory, ANY_DEVICE)
    finally:
        os.close(descriptor)


@pytest.fixture
def start_remote(fabric: ctypes.CDLL, start_backend: StartBackend) -> Iterator[Callable[..., Remote]]:
    started: list[Remote] = []

    def start(read_back_needed: bool = True) -> Remote:
        backend = start_backend(step_s=0.004)
        started.append(Remote(backend, registered(backend, read_back_needed)))
        return started[-1]

    yield start
    for remote in started:
        remote.close()


def test_what_is_registered_is_the_ring(fabric: ctypes.CDLL, start_remote: Callable[..., Remote]) -> None:
    """V8: all of it and nothing else, without atomics. A frontend counts its addresses from 0."""
    remote = start_remote()
    target, region = remote.target, remote.backend.region
    found = region_of(fabric, target.key)
    assert found is not None
    assert (found.file, found.file_offset) == (os.stat(remote.backend.path).st_ino, 0)
    assert (target.address, target.bytes) == (found.address, found.bytes) == (0, region.n_bytes)
    assert found.access == READ | WRITE | LOCAL
    target.close()
    assert region_of(fabric, target.key) is None
    remote.target = registered(remote.backend, True)


@pytest.mark.parametrize("read_back_needed", [True, False])
def test_requests_cross_the_fabric_to_a_dma_buf(
    start_remote: Callable[..., Remote], start_frontend: StartFrontend, read_back_needed: bool
) -> None:
    remote = start_remote(read_back_needed)
    frontend: Frontend = start_frontend(remote.backend, ring=remote.ring)
    assert frontend.service.transport.capabilities.name == "verbs"
    body = {"prompt": ["x"] * 48, "max_tokens": 30, "stream": True}
    chunks = events(frontend.client.post("/v1/completions", json=body))
    assert [text_of(chunks, i) for i in range(48)] == [expected(30)] * 48
    assert remote.backend.bad_checksums == 0


def without_read_back(remote: Remote) -> VerbsRing:
    return VerbsRing(host=remote.ring.host, port=remote.ring.port, key=remote.ring.key, read_back=False)


def test_the_read_back_cannot_be_left_out_where_the_gpu_needs_it(
    start_remote: Callable[..., Remote], start_frontend: StartFrontend
) -> None:
    """V3."""
    remote = start_remote(read_back_needed=True)
    with pytest.raises(TransportError, match="leave --no-read-back out"):
        start_frontend(remote.backend, ring=without_read_back(remote), attach_timeout_s=0.1)


def test_the_read_back_may_be_left_out_where_the_gpu_orders_writes(
    start_remote: Callable[..., Remote], start_frontend: StartFrontend
) -> None:
    remote = start_remote(read_back_needed=False)
    frontend = start_frontend(remote.backend, ring=without_read_back(remote))
    assert frontend.service.transport.capabilities.writes_ordered


def times_open(path: Path) -> int:
    """How many descriptors this process has of the file. Those of others may come and go meanwhile."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found += os.path.samestat(os.fstat(int(name)), path.stat())
    return found


def test_a_device_that_takes_no_dma_buf_is_told_of(fabric: ctypes.CDLL, start_backend: StartBackend) -> None:
    backend = start_backend()
    before = times_open(backend.path)
    fabric.fake_verbs_no_dmabuf(1)
    with pytest.raises(OSError, match=r"as a dma-buf .*--transport shm.*: Operation not supported"):
        registered(backend, True)
    assert times_open(backend.path) == before > 0


def test_a_ring_larger_than_its_dma_buf_is_not_registered(fabric: ctypes.CDLL, tmp_path: Path) -> None:
    short = tmp_path / "memory"
    short.write_bytes(bytes(4096))
    with open(short, "r+b") as file, pytest.raises(OSError, match="8192 bytes of GPU memory"):
        register_dmabuf(ExportedMemory(file.fileno(), 8192, True), ANY_DEVICE)
