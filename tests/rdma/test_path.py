"""HTTP to tokens over real queue pairs, rxe1 to rxe0, and what is left when either end or the cable goes.

The guest is emulated and about twenty times slower than a machine: numbers are small and deadlines generous.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fabric import StartExchange, remote_ring
from harness import Frontend, StartBackend, StartFrontend, wait_until
from mock_backend import MockBackend
from process_state import stop
from sse import events, text_of
from streams import Stream

from gpu_backend.rdma.exchange_process import ExchangeProcess
from ringbuffer import abi

CABLE = "veth1"
PATIENCE_S = 120.0  # nothing here takes a second on a machine that is not emulated


def expected(n: int) -> str:
    return "".join(chr(0x21 + i) for i in range(n))


@pytest.fixture
def backend(start_backend: StartBackend) -> MockBackend:
    return start_backend(step_s=0.02)


@pytest.fixture
def exchange(backend: MockBackend, start_exchange: StartExchange) -> ExchangeProcess:
    return start_exchange(backend.path)


@pytest.fixture
def frontend(backend: MockBackend, exchange: ExchangeProcess, start_frontend: StartFrontend) -> Frontend:
    return start_frontend(backend, ring=remote_ring(exchange))


@pytest.fixture
def cable() -> Iterator[Any]:
    """cable("down") pulls it out; it is plugged in again at the end."""

    def set_cable(state: str) -> None:
        subprocess.run(["ip", "link", "set", CABLE, state], check=True, timeout=10)

    yield set_cable
    set_cable("up")


def turns_on_a_core(pid: int) -> dict[str, int]:
    """How often each of the process's threads was given a core so far (/proc/PID/task/TID/schedstat).

    Its CPU time does not serve: the last moments before it stopped are booked only when it has left its
    core, which a look at its state does not wait for.
    """
    threads = Path(f"/proc/{pid}/task").iterdir()
    return {thread.name: int((thread / "schedstat").read_text().split()[2]) for thread in threads}


def healthy(frontend: Frontend) -> bool:
    return frontend.client.get("/health").status_code == 200


def test_tokens_cross_the_wire(backend: MockBackend, frontend: Frontend) -> None:
    answer = frontend.client.post("/v1/completions", json={"prompt": "x", "max_tokens": 20}).json()
    assert answer["choices"][0]["text"] == expected(20)
    body = {"prompt": ["x"] * 32, "max_tokens": 12, "stream": True}
    chunks = events(frontend.client.post("/v1/completions", json=body))
    assert [text_of(chunks, i) for i in range(32)] == [expected(12)] * 32
    assert backend.bad_checksums == 0


def test_words_are_read_whole_while_they_are_written(backend: MockBackend, frontend: Frontend) -> None:
    """R2 and R8 rest on it; a device that copies byte by byte, which InfiniBand allows, cannot serve."""
    words = backend.region.outputs[0]
    written, read = threading.Event(), set()

    def write() -> None:
        while not written.is_set():
            words[:] = 0
            words[:] = 2**64 - 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(200):
            found = frontend.service.transport.read(backend.geometry.offsets()["outputs"], words.nbytes)
            read.update(np.frombuffer(found, np.uint64).tolist())
    finally:
        written.set()
        writer.join()
    assert read == {0, 2**64 - 1}


def test_answers_from_the_arena_of_slots_used_again(
    start_backend: StartBackend, start_exchange: StartExchange, start_frontend: StartFrontend
) -> None:
    backend = start_backend(step_s=0.02, n_slots=16)
    backend.records, backend.torn, backend.tokens_per_step = "arena", True, 9
    frontend = start_frontend(backend, ring=remote_ring(start_exchange(backend.path)))
    for _ in range(3):
        answer = frontend.client.post("/v1/completions", json={"prompt": ["x"] * 16, "max_tokens": 60})
        assert [choice["text"] for choice in answer.json()["choices"]] == [expected(60)] * 16
        wait_until(lambda: frontend.service.tracker.slots.n_free == 16, PATIENCE_S)
    assert frontend.service._reader.health().arena_reads > 0


def test_a_thousand_requests_and_a_passive_host_that_sleeps(
    backend: MockBackend, exchange: ExchangeProcess, frontend: Frontend
) -> None:
    """V8: with the exchange stopped, nothing on the backend's host but the scheduler runs for them."""
    stop(exchange.pid, PATIENCE_S)
    before, began = turns_on_a_core(exchange.pid), time.monotonic()
    for burst in range(20):
        prompts = [[10 + burst, 10 + i] for i in range(50)]
        answer = frontend.client.post("/v1/completions", json={"prompt": prompts, "max_tokens": 4})
        assert [choice["text"] for choice in answer.json()["choices"]] == [expected(4)] * 50
        wait_until(lambda: frontend.service.tracker.slots.n_free == 64, PATIENCE_S)
    after, took = turns_on_a_core(exchange.pid), time.monotonic() - began
    os.kill(exchange.pid, signal.SIGCONT)
    print(f"1000 requests in {took:.1f} s")
    assert after == before
    ran = [tuple(row.prompt) for row in backend.accepted]
    assert len(ran) == len(set(ran)) == 1000
    assert backend.bad_checksums == 0


@pytest.fixture
def patient_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that lasts as much longer as the guest is slower."""
    for name in ("ringbuffer.abi", "nic_frontend.ring.backend_monitor"):
        monkeypatch.setattr(f"{name}.LEASE_TIMEOUT_NS", 20 * abi.LEASE_TIMEOUT_NS)


@pytest.mark.usefixtures("patient_scheduler")
def test_streams_outlive_a_cable_that_is_pulled_for_a_moment(
    backend: MockBackend, frontend: Frontend, cable: Any
) -> None:
    """V7: the device breaks its queue pairs with the cable; the lease and its epoch survive."""
    streams = [Stream(frontend.url, 60) for _ in range(4)]
    wait_until(lambda: all(stream.text for stream in streams), PATIENCE_S)
    cable("down")
    time.sleep(0.3)
    cable("up")
    for stream in streams:
        stream.join()
        assert (stream.text, stream.error) == (expected(60), "")
    assert frontend.service.lease.epoch == 1
    assert len(backend.accepted) == 4


def test_a_cable_that_is_pulled_for_long(backend: MockBackend, frontend: Frontend, cable: Any) -> None:
    backend.step_s = 0.2
    stream = Stream(frontend.url, 90)
    wait_until(lambda: stream.text, PATIENCE_S)
    cable("down")
    stream.join()
    assert stream.error
    assert expected(90).startswith(stream.text)
    assert frontend.client.post("/v1/completions", json={"prompt": "x"}).status_code == 503
    cable("up")
    backend.step_s = 0.02
    wait_until(lambda: healthy(frontend), PATIENCE_S)
    assert frontend.service.lease.epoch > 1
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
    backend: MockBackend,
    exchange: ExchangeProcess,
    start_frontend: StartFrontend,
    model_dir: Path,
    key_file: Path,
) -> None:
    """F1, V5: its lease is free at once, and the scheduler takes back what it held."""
    ring = remote_ring(exchange)
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
