"""What is left when the cable, the exchange or a frontend goes. Most tests share both ends, which
have to serve again after each.

The guest is emulated and about twenty times slower than a machine: numbers are small and deadlines generous.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fabric import EMULATED, PATIENCE_S, StartExchange, expected, remote_ring
from harness import Frontend, StartBackend, StartFrontend, wait_until
from mock_backend import MockBackend
from streams import Stream

from gpu_backend.rdma.exchange_process import ExchangeProcess

CABLE = "veth1"


@pytest.fixture
def cable() -> Iterator[Any]:
    """cable("down") pulls it out; it is plugged in again at the end."""

    def set_cable(state: str) -> None:
        subprocess.run(["ip", "link", "set", CABLE, state], check=True, timeout=PATIENCE_S)

    yield set_cable
    set_cable("up")


def healthy(frontend: Frontend) -> bool:
    return frontend.client.get("/health").status_code == 200


@pytest.mark.usefixtures("patient_scheduler")
def test_streams_outlive_a_cable_that_is_pulled_for_a_moment(
    backend: MockBackend, frontend: Frontend, cable: Any
) -> None:
    """V7: the device breaks its queue pairs with the cable; the lease and its epoch survive."""
    epoch, n_before = frontend.service.lease.epoch, len(backend.accepted)
    streams = [Stream(frontend.url, 60) for _ in range(4)]
    wait_until(lambda: all(stream.text for stream in streams), PATIENCE_S)
    cable("down")
    time.sleep(0.3)
    cable("up")
    for stream in streams:
        stream.join()
        assert (stream.text, stream.error) == (expected(60), "")
    assert frontend.service.lease.epoch == epoch
    assert len(backend.accepted) - n_before == 4


def test_a_cable_that_is_pulled_for_long(backend: MockBackend, frontend: Frontend, cable: Any) -> None:
    epoch = frontend.service.lease.epoch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "step_s", 0.2)
        stream = Stream(frontend.url, 90)
        wait_until(lambda: stream.text, PATIENCE_S)
        cable("down")
        stream.join()
        assert stream.error
        assert expected(90).startswith(stream.text)
        assert frontend.client.post("/v1/completions", json={"prompt": "x"}).status_code == 503
        cable("up")
    wait_until(lambda: healthy(frontend), PATIENCE_S)
    assert frontend.service.lease.epoch > epoch
    answer = frontend.client.post("/v1/completions", json={"prompt": ["x"] * 64, "max_tokens": 2})
    assert answer.json()["usage"]["completion_tokens"] == 128


def test_an_exchange_that_dies(backend: MockBackend, exchange: ExchangeProcess, frontend: Frontend) -> None:
    """Its queue pairs die with it; the backend starts it again and the frontend comes back."""
    options = exchange._command
    stream = Stream(frontend.url, 90)
    wait_until(lambda: stream.text, PATIENCE_S)
    port = exchange.address.rsplit(":", 1)[1]
    options[options.index("0")] = port  # where the frontend looks for it
    os.kill(exchange.pid, signal.SIGKILL)
    wait_until(lambda: exchange.look(), PATIENCE_S)
    stream.join()
    assert stream.text == expected(90) or stream.error
    wait_until(lambda: healthy(frontend), PATIENCE_S)
    answer = frontend.client.post("/v1/completions", json={"prompt": ["x"] * 64, "max_tokens": 2})
    assert answer.json()["usage"]["completion_tokens"] == 128


def test_a_frontend_that_dies(
    start_backend: StartBackend,
    start_exchange: StartExchange,
    start_frontend: StartFrontend,
    model_dir: Path,
    key_file: Path,
) -> None:
    """F1, V5: its lease is free at once, and the scheduler takes back what it held."""
    backend = start_backend(**EMULATED)
    ring = remote_ring(start_exchange(backend.path))
    command = ["blink", "frontend", str(model_dir), f"--connect={ring}", f"--ring-key-file={key_file}"]
    flags = ["--port=18431", f"--rdma-device={ring.rdma_device}"]
    process = subprocess.Popen([sys.executable, "-m", *command, *flags])
    try:
        wait_until(lambda: int(backend.region.lease_acks["word"][0]) >> 32 == 1, PATIENCE_S)
        stream = Stream("http://127.0.0.1:18431", 500, patience_s=PATIENCE_S)
        wait_until(lambda: stream.text, PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    stream.join()
    frontend = start_frontend(backend, ring=ring)
    assert frontend.service.lease.index == 0
    answer = frontend.client.post("/v1/completions", json={"prompt": ["x"] * 64, "max_tokens": 2})
    assert answer.json()["usage"]["completion_tokens"] == 128
