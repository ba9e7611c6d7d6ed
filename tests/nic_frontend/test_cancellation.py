"""Clients that leave or do not read: their slots come back, and nobody else notices."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import httpx
import pytest
from harness import Frontend, StartBackend, StartFrontend, wait_until
from limits import WAIT_S
from mock_backend import MockBackend

from nic_frontend.text.generation import Generation
from ringbuffer.abi import Command


def connect(frontend: Frontend, body: dict[str, Any], receive_buffer: int | None = None) -> socket.socket:
    """Sends a completion request over a plain socket."""
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(WAIT_S)
    connection.connect(("127.0.0.1", frontend.port))
    content = json.dumps(body).encode()
    head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    connection.sendall(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
    return connection


def commands_of(backend: MockBackend) -> list[Command]:
    return [command for _, _, command in backend.commands]


def test_leaving_a_stream_frees_the_slot(start_backend: StartBackend, start_frontend: StartFrontend) -> None:
    """F8."""
    backend = start_backend(step_s=0.05)
    frontend = start_frontend(backend)
    connection = connect(frontend, {"prompt": "x", "max_tokens": 400, "stream": True})
    assert b"data: " in connection.recv(65536) + connection.recv(65536)
    connection.close()
    wait_until(lambda: commands_of(backend) == [Command.SUBMIT, Command.CANCEL, Command.RELEASE])
    wait_until(lambda: frontend.service.tracker.slots.n_free == 64)
    assert backend.accepted[0].count < 200
    wait_until(lambda: frontend.service.metrics.client_disconnects == 1)
    assert frontend.service.metrics.finished["abort"] == 1


def test_leaving_before_the_answer_frees_the_slot(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    backend = start_backend(step_s=0.05)
    frontend = start_frontend(backend)
    connection = connect(frontend, {"prompt": ["x", "y"], "max_tokens": 400})
    wait_until(lambda: len(backend.accepted) == 2)
    connection.close()
    wait_until(lambda: commands_of(backend).count(Command.RELEASE) == 2)
    assert commands_of(backend).count(Command.CANCEL) == 2
    wait_until(lambda: frontend.service.tracker.slots.n_free == 64)


def test_leaving_before_the_scheduler_looked(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    backend = start_backend()
    frontend = start_frontend(backend)
    backend.frozen.set()
    connection = connect(frontend, {"prompt": "x", "max_tokens": 400, "stream": True})
    wait_until(lambda: frontend.service.tracker.n_open == 1)
    connection.close()
    wait_until(lambda: frontend.service.tracker.n_open == 0)
    backend.frozen.clear()
    wait_until(lambda: frontend.service.tracker.slots.n_free == 64)
    assert backend.open_rows() == 0


def test_one_client_leaving_does_not_disturb_another(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    frontend = start_frontend(start_backend(step_s=0.002))
    body = {"prompt": "x", "max_tokens": 100}
    answers: list[Any] = []
    stays = threading.Thread(
        target=lambda: answers.append(frontend.client.post("/v1/completions", json=body).json())
    )
    stays.start()
    for _ in range(5):
        connection = connect(frontend, {**body, "stream": True})
        connection.recv(100)
        connection.close()
    stays.join()
    assert answers[0]["usage"]["completion_tokens"] == 100
    wait_until(lambda: frontend.service.tracker.slots.n_free == 64)


def test_a_client_that_does_not_read_is_cancelled(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    """F6."""
    backend = start_backend(n_slots=16, max_context=100_000, step_s=0.01)
    backend.tokens_per_step = 50
    frontend = start_frontend(backend, max_buffered_tokens=500, send_buffer_bytes=8192)
    connection = connect(frontend, {"prompt": "x", "max_tokens": 90_000, "stream": True}, receive_buffer=4096)
    answer = frontend.client.post("/v1/completions", json={"prompt": "y", "max_tokens": 2000}).json()
    assert answer["usage"]["completion_tokens"] == 2000  # the reader was not held up
    wait_until(lambda: frontend.service.metrics.slow_clients == 1)
    wait_until(lambda: frontend.service.tracker.slots.n_free == 16)
    slow = next(row for row in backend.accepted if row.descriptor["max_tokens"] == 90_000)
    assert slow.count < 90_000
    received = b""
    while piece := connection.recv(65536):  # the server closes the connection: it does not hang
        received += piece
    assert b"[DONE]" not in received
    connection.close()


def test_keep_alive_serves_one_request_after_another(frontend: Frontend) -> None:
    connection = connect(frontend, {"prompt": "x", "max_tokens": 2})
    assert b"200 OK" in connection.recv(65536)
    connection.close()
    for _ in range(20):
        response = frontend.client.post("/v1/completions", json={"prompt": "x", "max_tokens": 3})
        assert response.json()["usage"]["completion_tokens"] == 3


def test_a_connection_that_acknowledges_nothing_is_dropped(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    """F9."""
    backend = start_backend(n_slots=16, max_context=100_000)
    backend.tokens_per_step = 2000
    frontend = start_frontend(backend, send_timeout_s=0.5, send_buffer_bytes=8192)
    connection = connect(frontend, {"prompt": "x", "max_tokens": 90_000}, receive_buffer=4096)
    wait_until(lambda: frontend.service.metrics.finished["length"] == 1)
    wait_until(lambda: not frontend.server.server_state.connections)
    connection.close()


@pytest.mark.parametrize("stream", [False, True])
def test_a_bug_ends_its_own_request_only(
    frontend: Frontend, backend: MockBackend, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    right = Generation.feed

    def wrong(self: Generation, token: int) -> str:
        if token == 8:
            raise IndexError("a bug")
        return right(self, token)

    monkeypatch.setattr(Generation, "feed", wrong)
    body = {"prompt": "x", "max_tokens": 50, "stream": stream}
    if stream:
        with pytest.raises(httpx.RemoteProtocolError):  # half an answer must not look like a whole one
            frontend.client.post("/v1/completions", json=body)
    else:
        error = frontend.client.post("/v1/completions", json=body).json()["error"]
        assert error["type"] == "server_error"
    wait_until(lambda: frontend.service.tracker.slots.n_free == 64)
    answer = frontend.client.post("/v1/completions", json={"prompt": "x", "max_tokens": 4}).json()
    assert answer["choices"][0]["text"] == '!"#$'
