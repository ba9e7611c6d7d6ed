"""The event loop reads nothing of the ring, which may be on another host and answer late (F10)."""

from __future__ import annotations

import threading

import pytest
from harness import COMPLETION, StartBackend, StartFrontend, wait_until

from ringbuffer.abi import LeaseState
from ringbuffer.words import pair_word


def test_the_event_loop_reads_nothing(
    start_backend: StartBackend, start_frontend: StartFrontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = start_backend()
    frontend = start_frontend(backend)
    transport, lease = frontend.service.transport, frontend.service.lease
    readers: list[int] = []
    read = transport.read

    def recorded(offset: int, n_bytes: int) -> bytes:
        readers.append(threading.get_ident())
        return read(offset, n_bytes)

    monkeypatch.setattr(transport, "read", recorded)
    assert frontend.client.post("/v1/completions", json=COMPLETION).status_code == 200
    assert "blink:generation_tokens" in frontend.client.get("/metrics").text
    assert frontend.client.get("/live").json()["slots"]["empty"] > 0
    at_rest = len(readers)
    backend.region.lease_acks["word"][lease.index] = pair_word(lease.epoch, LeaseState.RECLAIMED)
    wait_until(lambda: lease.epoch == 2 and frontend.client.get("/health").status_code == 200)
    assert 2 <= at_rest < len(readers)
    assert frontend._thread.ident not in readers
