"""The devices of the guest of scripts/soft-roce, and how the two sides of the tests use them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_backend.rdma.exchange_process import ExchangeProcess
from nic_frontend.options import VerbsRing

DEVICES = Path("/sys/class/infiniband")
KEY = b"a key for the tests of RDMA"
PASSIVE_ADDRESS = "10.90.0.1"
PATIENCE_S = 120.0  # nothing here takes a second on a machine that is not emulated
EMULATED = {"step_s": 0.02, "look_s": 0.01}  # of a mock backend that leaves an emulated processor to others

StartExchange = Callable[[Path], ExchangeProcess]


def devices() -> list[str]:
    return sorted(path.name for path in DEVICES.iterdir()) if DEVICES.is_dir() else []


def remote_ring(exchange: ExchangeProcess, **changes: Any) -> VerbsRing:
    """How a frontend on the other end of the cable reaches the exchange's ring."""
    host, port = exchange.address.rsplit(":", 1)
    values: dict[str, Any] = {"host": host, "port": int(port), "key": KEY, "rdma_device": devices()[-1]}
    return VerbsRing(**(values | changes))


def expected(n: int) -> str:
    """What a mock backend says in n tokens."""
    return "".join(chr(0x21 + i) for i in range(n))
