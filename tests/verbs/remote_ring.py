"""A mock backend whose ring frontends reach over the fabric, with the real exchange in between."""

from __future__ import annotations

from exchange_thread import KEY, ExchangeThread
from mock_backend import MockBackend

from gpu_backend.rdma.exchange_process import instance
from gpu_backend.rdma.exchange_server import RingFacts
from gpu_backend.rdma.target import RegisteredRing, register_host_memory
from nic_frontend.options import VerbsRing

ANY_DEVICE = (b"", -1, b"")


def expected(n: int) -> str:
    """What MockBackend's count_up answers in the alphabet of the tiny model."""
    return "".join(chr(0x21 + i % 94) if i % 256 < 94 else "" for i in range(n))


class Remote:
    """A mock backend, its registered ring and its exchange; `start_again` starts that on the same port.

    The ring is registered as the host memory that it is, where no `target` is given.
    """

    def __init__(self, backend: MockBackend, target: RegisteredRing | None = None) -> None:
        self.backend = backend
        region = backend.region
        self.target = target or register_host_memory(region.address, region.n_bytes, ANY_DEVICE)
        self.facts = RingFacts(
            backend.geometry.n_leases,
            region.header["fingerprint"][0].tobytes(),
            instance(backend.path, region.header[0]),
        )
        self.exchange = ExchangeThread(backend.path, self.facts, self.target)
        self.ring = VerbsRing(host="127.0.0.1", port=self.exchange.port, key=KEY)

    def start_again(self, facts: RingFacts | None = None) -> None:
        self.exchange = ExchangeThread(
            self.backend.path, facts or self.facts, self.target, port=self.ring.port
        )

    def close(self) -> None:
        self.exchange.stop()
        self.target.close()
