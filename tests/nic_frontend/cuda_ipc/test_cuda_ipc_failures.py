"""The transport cuda_ipc where a GPU hangs or fails, or its ring cannot be opened."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

import numpy as np
import pytest
from gpu_ring import COPY, SECOND_GPU, Ring, expose, log, submit, tokens
from harness import StartBackend, StartFrontend, wait_until
from own_time import own_s

from nic_frontend.library import library
from nic_frontend.transport import cuda_ipc
from nic_frontend.transport.base import TransportError
from nic_frontend.transport.cuda_ipc import CudaIpc
from ringbuffer import device_ring


@pytest.mark.alone
def test_a_gpu_that_hangs_is_given_up_within_its_bound(ring: Ring, driver: ctypes.CDLL) -> None:
    """U4."""
    driver.fake_hang(1)
    began = time.monotonic()
    with pytest.raises(TransportError, match="the GPU that holds the ring failed or hangs"):
        ring[1].read(0, 64)
    assert 0.9 < time.monotonic() - began < 10
    began = own_s()
    with pytest.raises(TransportError):
        ring[1].read(0, 64)
    submit(ring, 0, tokens(900, 0), 1)
    ring[1].close()
    assert own_s() - began < 0.2  # it does not try again
    driver.fake_hang(0)
    before = driver.fake_rounds()
    wait_until(lambda: driver.fake_rounds() != before)
    assert not ring[0].requests.any()  # nothing that was submitted was still in a queue


@pytest.mark.alone
def test_a_full_queue_is_a_bounded_wait(ring: Ring, driver: ctypes.CDLL) -> None:
    driver.fake_hang(1)
    began = time.monotonic()
    for i in range(300):
        submit(ring, i % 16, tokens(300, i), 1)  # more than the staging holds
    assert time.monotonic() - began < 10
    assert library().blink_link_read(ring[1].link, 0, ctypes.create_string_buffer(8), 8) != 0


def test_a_failed_gpu_is_told_once(
    ring: Ring, driver: ctypes.CDLL, capfd: pytest.CaptureFixture[str]
) -> None:
    driver.fake_break(1)
    for _ in range(3):
        with pytest.raises(TransportError):
            ring[1].read(0, 64)
    told = capfd.readouterr().err
    assert told.count("\n") == 1
    assert told.startswith("blink frontend: the link to the ring is down: ")
    assert "unspecified launch failure (CUresult 719)" in told


def test_what_cannot_be_opened_says_why(ring: Ring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    region, _ = ring
    with pytest.raises(TransportError, match=r"no ring in GPU memory at .*start `blink backend --transport"):
        CudaIpc(tmp_path / "none")
    with pytest.raises(TransportError, match="no ring in GPU memory"):
        CudaIpc(region.path)  # in host memory
    header, handle = region.header.copy(), str(region.path).encode().ljust(64, b"\0")
    path = tmp_path / "ring"
    for gpu, memory, message in (
        (b"\7" * 16, handle, "the ring's GPU is not visible to this process: see CUDA_VISIBLE_DEVICES"),
        (b"\1" * 16, handle, "the GPU has no 64-bit stream memory operations"),
        (SECOND_GPU, b"/gone".ljust(64, b"\0"), "has its backend ended"),
    ):
        name = device_ring.write(path, header, gpu, memory)
        with pytest.raises(TransportError, match=message):
            CudaIpc(path)
        name.close()
    name = device_ring.write(path, header, SECOND_GPU, handle)
    monkeypatch.setattr(cuda_ipc, "DRIVER", "libcuda-of-nobody.so.1")
    with pytest.raises(TransportError, match=r"no NVIDIA driver: libcuda-of-nobody"):
        CudaIpc(path)
    name.close()
    header["layout_hash"] += np.uint64(1)
    name = device_ring.write(path, header, SECOND_GPU, handle)
    with pytest.raises(TransportError, match="run the same version of blink on both sides"):
        CudaIpc(path)
    name.close()


@pytest.mark.slow
def test_a_frontend_serves_over_it_and_says_503_when_the_gpu_is_gone(
    driver: ctypes.CDLL, start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    backend = start_backend(prompt_heap=64 * COPY // 4)
    name = expose(backend.region)
    in_host_memory, backend.path = backend.path, name.path
    frontend = start_frontend(backend)
    body = {"prompt": "one two three", "max_tokens": 40, "temperature": 0}
    over_gpu = frontend.client.post("/v1/completions", json=body).json()["choices"]
    backend.path = in_host_memory
    assert backend.bad_checksums == 0
    assert len(backend.accepted) == 1
    assert over_gpu[0]["finish_reason"] == "length"
    assert any(kind == "batch" for kind, _, _ in log(driver))

    driver.fake_break(1)
    wait_until(lambda: frontend.client.get("/health").status_code == 503)
    refused = frontend.client.post("/v1/completions", json=body)
    assert refused.status_code == 503
    name.close()
