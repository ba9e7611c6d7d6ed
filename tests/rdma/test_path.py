"""HTTP to tokens over real queue pairs, rxe1 to rxe0.

The guest is emulated and about twenty times slower than a machine: numbers are small and deadlines generous.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from fabric import EMULATED, PATIENCE_S, StartExchange, expected, remote_ring
from harness import Frontend, StartBackend, StartFrontend, wait_until
from mock_backend import MockBackend
from process_state import stopped
from sse import events, text_of

from gpu_backend.rdma.exchange_process import ExchangeProcess


def turns_on_a_core(pid: int) -> dict[str, int]:
    """How often each of the process's threads was given a core so far (/proc/PID/task/TID/schedstat).

    Its CPU time does not serve: the last moments before it stopped are booked only when it has left its
    core, which a look at its state does not wait for.
    """
    threads = Path(f"/proc/{pid}/task").iterdir()
    return {thread.name: int((thread / "schedstat").read_text().split()[2]) for thread in threads}


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
    words[:] = 0
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


@pytest.mark.usefixtures("patient_scheduler")
def test_answers_from_the_arena_of_slots_used_again(
    start_backend: StartBackend, start_exchange: StartExchange, start_frontend: StartFrontend
) -> None:
    backend = start_backend(**EMULATED, n_slots=16)
    backend.records, backend.torn, backend.tokens_per_step = "arena", True, 9
    frontend = start_frontend(backend, ring=remote_ring(start_exchange(backend.path)))
    for _ in range(3):
        answer = frontend.client.post("/v1/completions", json={"prompt": ["x"] * 16, "max_tokens": 60})
        assert answer.status_code == 200, answer.text
        assert [choice["text"] for choice in answer.json()["choices"]] == [expected(60)] * 16
        wait_until(lambda: frontend.service.tracker.slots.n_free == 16, PATIENCE_S)
    assert frontend.service._reader.health().arena_reads > 0


def test_a_thousand_requests_and_a_passive_host_that_sleeps(
    backend: MockBackend, exchange: ExchangeProcess, frontend: Frontend
) -> None:
    """V8: with the exchange stopped, nothing on the backend's host but the scheduler runs for them."""
    with stopped(exchange.pid, PATIENCE_S):
        before, began, n_before = turns_on_a_core(exchange.pid), time.monotonic(), len(backend.accepted)
        for burst in range(20):
            prompts = [[10 + burst, 10 + i] for i in range(50)]
            answer = frontend.client.post("/v1/completions", json={"prompt": prompts, "max_tokens": 4})
            assert [choice["text"] for choice in answer.json()["choices"]] == [expected(4)] * 50
            wait_until(lambda: frontend.service.tracker.slots.n_free == 64, PATIENCE_S)
        after, took = turns_on_a_core(exchange.pid), time.monotonic() - began
    print(f"1000 requests in {took:.1f} s")
    assert after == before
    ran = [tuple(row.prompt) for row in backend.accepted[n_before:]]
    assert len(ran) == len(set(ran)) == 1000
    assert backend.bad_checksums == 0
