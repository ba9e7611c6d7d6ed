"""Requests whose grammars take long, or are hostile: what they cost their client, and others."""

from __future__ import annotations

import logging
import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from harness import COMPLETION, Frontend, StartFrontend, error_of, wait_until
from limits import WAIT_S
from mock_backend import MockBackend

KEYS = """
[[key]]
name = "few-requests"
key = "few-requests"
requests-per-minute = 2

[[key]]
name = "few-tokens"
key = "few-tokens"
tokens-per-minute = 3
"""
IMPOSSIBLE = {"type": "integer", "minimum": 1, "maximum": 0}


def slow(number: int) -> dict[str, Any]:
    """A grammar that takes all the time that one may, and is refused."""
    rules = [f'r{i} ::= ("a" | "b")* "a" ("a" | "b"){{{8 + i % 5}}} r{(i + 1) % 40}?' for i in range(40)]
    root = " | ".join(f'"k{number}-{i}" r{i}' for i in range(40))
    return {**COMPLETION, "guided_grammar": "\n".join([f"root ::= {root}", *rules])}


def choice(text: str) -> dict[str, Any]:
    return {**COMPLETION, "guided_choice": [text]}


def post(frontend: Frontend, body: dict[str, Any], key: str = "") -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return frontend.client.post("/v1/completions", json=body, headers=headers)


def test_what_clients_that_left_asked_for_is_not_compiled(frontend: Frontend) -> None:
    for i in range(30):
        body = httpx.Request("POST", frontend.url, json=slow(i)).content
        head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        with socket.create_connection(("127.0.0.1", frontend.port)) as connection:
            connection.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + body)
            wait_until(lambda: frontend.service.grammars.waiting)
    wait_until(lambda: not frontend.service.grammars.waiting)
    assert post(frontend, choice("x")).status_code == 200
    assert frontend.service.metrics.grammars_refused == 0


@pytest.mark.usefixtures("budget_clock")
def test_a_key_pays_for_what_is_refused_and_what_is_compiled(
    backend: MockBackend, start_frontend: StartFrontend, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(KEYS)
    frontend = start_frontend(backend, api_keys=keys)
    for i in range(2):
        error_of(
            post(frontend, {**COMPLETION, "guided_json": {**IMPOSSIBLE, "title": str(i)}}, "few-requests"),
            400,
        )
    again = post(frontend, {**COMPLETION, "guided_json": {**IMPOSSIBLE, "title": "x"}}, "few-requests")
    assert "requests-per-minute" in error_of(again, 429)["message"]
    while post(frontend, choice(str(time.monotonic())), "few-tokens").status_code == 200:
        pass
    made = frontend.service.metrics.figures(0, frontend.service._reader.health())["histograms"]
    refused = post(frontend, choice("another"), "few-tokens")
    assert "tokens-per-minute" in error_of(refused, 429)["message"]
    now = frontend.service.metrics.figures(0, frontend.service._reader.health())["histograms"]
    assert now["grammar_compile_time_seconds"] == made["grammar_compile_time_seconds"]


def test_a_frontend_ends_in_order_while_grammars_wait(
    backend: MockBackend, start_frontend: StartFrontend, caplog: pytest.LogCaptureFixture
) -> None:
    frontend = start_frontend(backend, drain_timeout_s=WAIT_S)
    answers: list[httpx.Response] = []

    def ask(number: int) -> None:
        with httpx.Client(base_url=frontend.url, timeout=WAIT_S, verify=False) as client:
            answers.append(client.post("/v1/completions", json=slow(number)))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    # On a busy machine the first is refused before the last is there.
    wait_until(lambda: frontend.service.grammars.waiting + len(answers) >= 12)
    with caplog.at_level(logging.ERROR):
        frontend.stop()
    for thread in threads:
        thread.join(WAIT_S)
    assert not caplog.records
    messages = [error_of(answer, answer.status_code)["message"] for answer in answers]
    assert len(messages) == 12
    assert sum(message == "the frontend is shutting down" for message in messages) >= 6
    assert {answer.status_code for answer in answers} <= {400, 503}
