"""A backend's exchange that serves a test, over plain sockets and a region without a device."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from exchange_thread import KEY, ExchangeThread
from limits import WAIT_S

from gpu_backend.rdma.exchange_server import RingFacts
from nic_frontend.transport.exchange_client import Exchange
from ringbuffer import abi
from ringbuffer.rdma import messages
from ringbuffer.rdma.messages import Claim, EndpointAddress

__all__ = ["_all_logs", "ring", "server", "start"]

FINGERPRINT = bytes(range(32))
ENDPOINT = EndpointAddress(bytes(16), 0, 3, 16, (17, 18), (5, 6))
CLAIM = Claim(abi.ABI_VERSION, abi.RING_LAYOUT_HASH, FINGERPRINT, None, None, ENDPOINT)


class Pairs:
    def __init__(self, log: list[str], peer: EndpointAddress) -> None:
        self._log = log
        self.address = dataclasses.replace(ENDPOINT, numbers=(peer.numbers[0] + 100, peer.numbers[1] + 100))
        log.append("open")

    def close(self) -> None:
        self._log.append("close")


class FakeTarget:
    """A registered region without a device."""

    address, bytes, key, read_back_needed = 0x7F0000000000, 1 << 20, 77, False

    def __init__(self) -> None:
        self.log: list[str] = []
        self.unreachable = False

    def accept(self, peer: EndpointAddress) -> Pairs:
        if self.unreachable:
            raise OSError("no route")
        return Pairs(self.log, peer)


class RunningServer(ExchangeThread):
    def __init__(self, ring: Path, n_leases: int, silence_s: float) -> None:
        self.target = FakeTarget()
        facts = RingFacts(n_leases, FINGERPRINT, "instance-1")
        super().__init__(ring, facts, self.target, silence_s=silence_s)

    def connect(self, key: bytes = KEY) -> Exchange:
        return Exchange("127.0.0.1", self.port, key)

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    path = tmp_path / "ring"
    path.write_bytes(bytes(64))
    path.chmod(0o600)
    return path


@pytest.fixture
def start(ring: Path) -> Iterator[Callable[..., RunningServer]]:
    started: list[RunningServer] = []

    def start(n_leases: int = 2, silence_s: float = messages.SILENCE_S) -> RunningServer:
        started.append(RunningServer(ring, n_leases, silence_s))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def server(start: Callable[..., RunningServer]) -> RunningServer:
    return start()


@pytest.fixture(autouse=True)
def _all_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="gpu_backend.rdma.exchange_server")


def read_to_end(stream: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := stream.recv(4096):
            found += part
    return found
