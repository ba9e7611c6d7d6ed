"""When a stream's response begins: as soon as its request was submitted, and not before."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from harness import CHAT, COMPLETION, Frontend, StartBackend, StartFrontend, error_of, wait_until
from limits import WAIT_S
from mock_backend import MockBackend
from sse import parse, text_of

from nic_frontend.ring.slot_tracker import Size
from ringbuffer.abi import Phase

STREAMS = [
    ("/v1/completions", {**COMPLETION, "stream": True}),
    ("/v1/chat/completions", {**CHAT, "stream": True}),
]


@pytest.fixture
def waiting(backend: MockBackend) -> Iterator[MockBackend]:
    """Nothing that is submitted gets a token, as behind the prompts of others."""
    backend.stalled.set()
    yield backend
    backend.stalled.clear()


@pytest.mark.parametrize(("path", "body"), STREAMS)
def test_headers_come_before_the_first_token(
    frontend: Frontend, waiting: MockBackend, path: str, body: dict[str, Any]
) -> None:
    with frontend.client.stream("POST", path, json=body) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-accel-buffering"] == "no"
        assert np.count_nonzero(waiting.region.requests) == 1  # it has been submitted
        wait_until(lambda: len(waiting.accepted) == 1)
        assert waiting.accepted[0].count == 0
        waiting.stalled.clear()
        chunks = parse("".join(response.iter_text()))
    assert text_of(chunks) == '!"'


def test_what_fails_before_the_first_token_is_an_error_event(
    frontend: Frontend, waiting: MockBackend
) -> None:
    body = {"prompt": "x", "stream": True}
    with frontend.client.stream("POST", "/v1/completions", json=body) as response:
        assert response.status_code == 200
        waiting.set_phase(Phase.STOPPED)
        lines = [line for line in response.iter_lines() if line]
    error = json.loads(lines[-2].removeprefix("data: "))["error"]
    assert "the scheduler is in phase STOPPED" in error["message"]
    assert lines[-1] == "data: [DONE]"


def test_what_the_scheduler_refuses_is_an_error_event(
    start_backend: StartBackend, start_frontend: StartFrontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R7: it was accepted here, and the reason comes through the ring."""
    backend = start_backend()
    frontend = start_frontend(backend)
    monkeypatch.setattr("mock_backend.crc32c", lambda *arguments: 0)
    answer = frontend.client.post("/v1/completions", json={"prompt": "x", "stream": True})
    assert answer.status_code == 200
    (chunk,) = parse(answer.text)
    assert "damaged between the frontend and the scheduler" in chunk["error"]["message"]
    error_of(frontend.client.post("/v1/completions", json={"prompt": "x"}), 502)


def test_what_is_refused_before_it_is_submitted_keeps_its_status(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    backend = start_backend(n_slots=16)
    frontend = start_frontend(backend)

    def stream(**body: Any) -> httpx.Response:
        return frontend.client.post("/v1/completions", json={"prompt": "x", "stream": True, **body})

    error_of(stream(temperature=-1), 400)
    error_of(stream(model="another"), 404)
    backend.stalled.set()
    taken = threading.Thread(target=lambda: stream(prompt=["x"] * 16, max_tokens=1))
    taken.start()
    wait_until(lambda: len(backend.accepted) == 16)
    assert "retry-after" in stream().headers
    error_of(stream(), 429)
    backend.stalled.clear()
    taken.join()
    backend.set_phase(Phase.DRAINING)
    wait_until(lambda: frontend.client.get("/health").status_code == 503)
    error_of(stream(), 503)


def test_a_request_that_waits_for_a_slot_has_no_headers_yet(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    """It may still get 429, which clients understand; the wait has a bound, `slot_wait_s`."""
    backend = start_backend(n_slots=16)
    frontend = start_frontend(backend, slot_wait_s=0.5)
    tracker = frontend.service.tracker
    slots = tracker.slots.take([Size(1, 1)] * 16)
    for slot in slots:
        tracker.slots.releasing(slot)  # and none is ever freed
    began = time.monotonic()
    error_of(frontend.client.post("/v1/completions", json={"prompt": "x", "stream": True}), 429)
    assert time.monotonic() - began > 0.4


def test_a_submission_that_fails_keeps_its_status(
    frontend: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontend.service._reader, "submit", lambda *arguments: False)
    answer = frontend.client.post("/v1/completions", json={"prompt": "x", "stream": True})
    assert "the way to the backend was lost" in error_of(answer, 503)["message"]
    assert frontend.service.tracker.slots.n_free == 64


def test_a_client_that_leaves_before_the_first_token_is_cancelled(
    frontend: Frontend, waiting: MockBackend
) -> None:
    with httpx.stream(
        "POST", f"{frontend.url}/v1/completions", json={"prompt": "x", "stream": True}, timeout=WAIT_S
    ) as response:
        assert response.status_code == 200
        wait_until(lambda: len(waiting.accepted) == 1)
    wait_until(lambda: frontend.service.tracker.slots.n_free == 64)
    assert waiting.accepted[0].count == 0
    assert frontend.service.metrics.finished["abort"] == 1
