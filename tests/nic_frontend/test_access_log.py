"""A line for each request, and the id that a request has from its client or is given."""

from __future__ import annotations

import logging
import re
from typing import Any

import httpx
import pytest
from harness import CHAT, COMPLETION, IMPATIENT, Frontend, StartFrontend, wait_until
from mock_backend import MockBackend

from ringbuffer.messages import LOG_FIELDS


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "nic_frontend.observe.access_log")
    return caplog


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    records = [record for record in caplog.records if record.name == "nic_frontend.observe.access_log"]
    return [(record.getMessage(), getattr(record, LOG_FIELDS)) for record in records]


def test_a_request_has_a_line_with_its_tokens_and_times(
    backend: MockBackend, start_frontend: StartFrontend, logged: pytest.LogCaptureFixture
) -> None:
    backend.cached_tokens = 1
    frontend = start_frontend(backend, log_requests=True)
    body = {"prompt": [5, 6, 7], "max_tokens": 4, "ignore_eos": True}
    frontend.client.post("/v1/completions", json=body, headers={"x-request-id": "mine-1"})
    wait_until(lambda: lines(logged))
    ((text, fields),) = lines(logged)
    assert re.fullmatch(
        r"127\.0\.0\.1 POST /v1/completions 200 in \d+\.\d{3} s, 3 tokens in \(1 cached\), 4 out, "
        r"TTFT [\d.]+ ms, TPOT [\d.]+ ms, id mine-1",
        text,
    )
    assert fields.items() >= {
        "id": "mine-1", "status": 200, "prompt_tokens": 3, "cached_tokens": 1, "output_tokens": 4,
    }.items()  # fmt: skip
    assert 0 <= fields["queue_ms"] <= fields["ttft_ms"] <= fields["seconds"] * 1e3


def test_what_was_refused_or_left_has_one_too_and_probes_have_none(
    backend: MockBackend, start_frontend: StartFrontend, logged: pytest.LogCaptureFixture
) -> None:
    frontend = start_frontend(backend, log_requests=True)
    frontend.client.get("/health")
    frontend.client.get("/metrics")
    frontend.client.post("/v1/completions", json={"prompt": 3.5})
    frontend.client.get("/no%0Asuch path")
    backend.stalled.set()
    with pytest.raises(httpx.ReadTimeout):
        frontend.client.post("/v1/completions", json=COMPLETION, timeout=IMPATIENT)
    wait_until(lambda: len(lines(logged)) == 3)
    refused, unknown, left = (text for text, _ in lines(logged))
    assert "POST /v1/completions 400 in" in refused
    assert "GET /no%0Asuch%20path 404 in" in unknown
    assert "POST /v1/completions the client left in" in left


def test_nothing_is_logged_of_requests_unless_asked_for(
    frontend: Frontend, logged: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):  # when the second is answered, the first one's line would be there
        frontend.client.post("/v1/completions", json=COMPLETION)
    assert lines(logged) == []


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/nowhere"])
def test_every_answer_has_the_clients_id_or_one_of_its_own(frontend: Frontend, path: str) -> None:
    body = CHAT if "chat" in path else COMPLETION
    given = frontend.client.post(path, json=body, headers={"x-request-id": "trace/7:a"})
    assert given.headers["x-request-id"] == "trace/7:a"
    made = {frontend.client.post(path, json=body).headers["x-request-id"] for _ in range(2)}
    assert len(made) == 2
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in made)


@pytest.mark.parametrize("given", ["", "with space", "x" * 129, "täst"])
def test_an_id_that_no_log_should_have_is_replaced(frontend: Frontend, given: str) -> None:
    headers = [(b"x-request-id", given.encode("latin-1"))]
    answer = frontend.client.get("/health", headers=headers)
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])


def test_a_stream_has_its_id_before_its_first_token(frontend: Frontend) -> None:
    with frontend.client.stream("POST", "/v1/completions", json={**COMPLETION, "stream": True}) as answer:
        assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])
        answer.read()
