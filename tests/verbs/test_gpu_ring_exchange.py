"""The exchange of a ring in GPU memory: the process that a backend starts, and gives the ring's dma-buf. Its
libibverbs is the fabric, which is preloaded.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fabric_sources import FabricLibraries
from mock_backend import MockBackend
from waiting import wait_until

from gpu_backend.rdma import exchange_process, target
from gpu_backend.rdma.exchange_process import ExchangeFailed, ExchangeProcess
from gpu_backend.rdma.options import RdmaOptions
from gpu_backend.rdma.target import ExportedMemory
from nic_frontend.transport.exchange_client import Exchange
from ringbuffer import abi
from ringbuffer.rdma.messages import Claim, EndpointAddress, Grant

KEY = b"0123456789abcdef"
OPTIONS = RdmaOptions(host="127.0.0.1", port=0)

StartExchange = Callable[..., ExchangeProcess]


@pytest.fixture(autouse=True)
def _fabric_in_processes(fabric_libraries: FabricLibraries, monkeypatch: pytest.MonkeyPatch) -> None:
    if not target.PATH.exists():
        pytest.skip(f"no {target.PATH.name}: scripts/setup builds it")
    monkeypatch.setenv("LD_PRELOAD", str(fabric_libraries.fabric))
    monkeypatch.setenv("BLINK_RING_KEY", KEY.decode())


@pytest.fixture
def backend(start_backend: Callable[..., MockBackend]) -> MockBackend:
    return start_backend()


def exported(backend: MockBackend, read_back_needed: bool = True) -> ExportedMemory:
    descriptor = os.open(backend.path, os.O_RDWR | os.O_CLOEXEC)
    return ExportedMemory(descriptor, backend.region.n_bytes, read_back_needed)


@pytest.fixture
def start(backend: MockBackend) -> Iterator[StartExchange]:
    started: list[ExchangeProcess] = []

    def start(memory: ExportedMemory, options: RdmaOptions = OPTIONS) -> ExchangeProcess:
        started.append(ExchangeProcess(backend.path, options, memory))
        return started[-1]

    yield start
    for exchange in started:
        exchange.close()


def granted(exchange: ExchangeProcess, backend: MockBackend) -> Grant:
    host, port = exchange.address.rsplit(":", 1)
    connection = Exchange(host, int(port), KEY)
    try:
        endpoint = EndpointAddress(bytes(16), 0, 3, 16, (17, 18), (5, 6))
        fingerprint = backend.region.header["fingerprint"][0].tobytes()
        claim = Claim(abi.ABI_VERSION, abi.RING_LAYOUT_HASH, fingerprint, None, None, endpoint)
        return connection.claim(claim)
    finally:
        connection.close()


@pytest.mark.parametrize("read_back_needed", [True, False])
def test_a_frontend_is_told_of_the_memory(
    start: StartExchange, backend: MockBackend, read_back_needed: bool
) -> None:
    """V3, V8."""
    memory = exported(backend, read_back_needed)
    grant = granted(start(memory), backend)
    assert (grant.address, grant.bytes) == (0, memory.n_bytes)
    assert grant.read_back_needed is read_back_needed


def test_an_exchange_that_was_killed_has_the_memory_again(
    start: StartExchange, backend: MockBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange_process, "RESTART_PAUSE_S", 0.0)
    memory = exported(backend)
    exchange = start(memory)
    os.kill(exchange.pid, signal.SIGKILL)
    wait_until(lambda: "was started again" in (exchange.look() or ""))
    assert granted(exchange, backend).bytes == memory.n_bytes


def is_open(descriptor: int) -> bool:
    return Path(f"/proc/self/fd/{descriptor}").exists()


def test_the_descriptor_is_closed_with_the_exchange(backend: MockBackend) -> None:
    memory = exported(backend)
    exchange = ExchangeProcess(backend.path, OPTIONS, memory)
    assert is_open(memory.descriptor)  # for the next process, if this one dies
    exchange.close()
    assert not is_open(memory.descriptor)


def test_the_descriptor_is_closed_where_the_exchange_does_not_start(backend: MockBackend) -> None:
    memory = exported(backend)
    with pytest.raises(ExchangeFailed):
        ExchangeProcess(backend.path, RdmaOptions(host="127.0.0.1", port=0, rdma_device="none"), memory)
    assert not is_open(memory.descriptor)


def test_the_descriptor_is_closed_where_there_is_no_key(
    backend: MockBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BLINK_RING_KEY")
    memory = exported(backend)
    with pytest.raises(ValueError, match="no key for the ring"):
        ExchangeProcess(backend.path, OPTIONS, memory)
    assert not is_open(memory.descriptor)


def test_memory_that_cannot_be_registered_is_told_of(
    backend: MockBackend, capfd: pytest.CaptureFixture[str]
) -> None:
    memory = exported(backend)
    larger = ExportedMemory(memory.descriptor, 2 * memory.n_bytes, True)
    with pytest.raises(ExchangeFailed, match="see above"):
        ExchangeProcess(backend.path, OPTIONS, larger)
    assert f"cannot register {larger.n_bytes} bytes of GPU memory as a dma-buf" in capfd.readouterr().err
