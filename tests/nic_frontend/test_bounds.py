"""What all clients together may take of a frontend (connections, memory, time), and what they are told."""

from __future__ import annotations

import contextlib
import json
import logging
import select
import socket
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from harness import Frontend, StartBackend, StartFrontend, error_of, wait_until
from limits import WAIT_S
from mock_backend import MockBackend
from sse import parse
from test_http_connection import CHUNKED, HALF, POST, answer, is_closed, post

from nic_frontend.http import connection, wrong_keys
from nic_frontend.http.bodies import SMALL

Connect = Callable[[Frontend], socket.socket]


@pytest.fixture
def connect() -> Iterator[Connect]:
    with contextlib.ExitStack() as stack:
        yield lambda frontend: stack.enter_context(
            socket.create_connection(("127.0.0.1", frontend.port), timeout=WAIT_S)
        )


SILENT = {
    "silent": b"",
    "half a head": HALF,
    "half a body": POST + b"content-length: 50\r\n\r\n{",
    "answered": HALF + b"\r\n",
}


@pytest.mark.parametrize("sent", SILENT.values(), ids=SILENT.keys())
def test_connections_that_keep_the_server_waiting_make_room(
    backend: MockBackend,
    start_frontend: StartFrontend,
    connect: Connect,
    sent: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """F9: the longest first, and nobody else."""
    frontend = start_frontend(backend, max_connections=4)
    with caplog.at_level(logging.WARNING):
        silent = [connect(frontend) for _ in range(4)]
        for client in silent:
            client.sendall(sent)
            if sent.endswith(b"\r\n\r\n"):
                assert answer(client)[0] == 200
            time.sleep(0.02)
        late = connect(frontend)
        late.sendall(post())
        assert answer(late)[0] == 200
    assert is_closed(silent[0])
    silent[1].settimeout(0.1)
    with pytest.raises(TimeoutError):
        silent[1].recv(1)
    told = [record.message for record in caplog.records if "--max-connections" in record.message]
    assert len(told) == 1


def test_answers_that_are_owed_are_not_given_up_for_others(
    start_backend: StartBackend, start_frontend: StartFrontend, connect: Connect
) -> None:
    backend = start_backend()
    backend.stalled.set()
    frontend = start_frontend(backend, max_connections=2)
    served = [connect(frontend) for _ in range(2)]
    for client in served:
        client.sendall(post(max_tokens=10))
    wait_until(lambda: len(backend.accepted) == 2)
    status, refused = answer(connect(frontend))
    assert status == 503
    assert "as many connections" in refused["error"]["message"]
    backend.stalled.clear()
    assert [answer(client)[1]["usage"]["completion_tokens"] for client in served] == [10, 10]


def test_bodies_together_have_a_largest_size(
    backend: MockBackend, start_frontend: StartFrontend, connect: Connect
) -> None:
    """F9: large ones are in the way of large ones alone, and only while they are there."""
    frontend = start_frontend(backend, body_memory_bytes=1 << 20)
    halves = [connect(frontend) for _ in range(2)]
    for client in halves:
        client.sendall(POST + b"content-length: 1000000\r\n\r\n" + b" " * 500_000)
    wait_until(lambda: frontend.service.bodies.held > 900_000)
    late = connect(frontend)
    late.sendall(POST + b"content-length: 1000000\r\n\r\n" + b" " * 200_000)
    status, refused = answer(late)
    assert status == 503
    assert "too large together" in refused["error"]["message"]
    assert is_closed(late)
    small = {"prompt": "x", "max_tokens": 2, "user": "u" * (SMALL - 100)}
    assert frontend.client.post("/v1/completions", json=small).status_code == 200
    for client in halves:
        client.close()
    wait_until(lambda: frontend.service.bodies.held == 0)
    large = {"prompt": "x", "max_tokens": 2, "user": "u" * 900_000}
    assert frontend.client.post("/v1/completions", json=large).status_code == 200
    assert frontend.service.bodies.held == 0


def test_a_request_has_a_longest_time(start_backend: StartBackend, start_frontend: StartFrontend) -> None:
    backend = start_backend(step_s=0.02)
    frontend = start_frontend(backend, request_timeout_s=0.5)
    body = {"prompt": "x", "max_tokens": 400}
    told = error_of(frontend.client.post("/v1/completions", json=body), 504)
    assert told["code"] == "request_timeout"

    def ends_amid_its_tokens() -> bool:  # a busy machine may have no token in time
        answered = frontend.client.post("/v1/completions", json={**body, "stream": True})
        if answered.status_code == 504:  # nor have begun to answer
            assert error_of(answered, 504)["code"] == "request_timeout"
            return False
        assert parse(answered.text)[-1]["error"]["code"] == "request_timeout"
        return answered.text.count("data: ") > 3

    wait_until(ends_amid_its_tokens)
    wait_until(lambda: frontend.service.tracker.slots.n_free == 64)
    short = {"prompt": "x", "max_tokens": 2}
    wait_until(lambda: frontend.client.post("/v1/completions", json=short).status_code == 200)


def test_a_client_that_takes_nothing_of_its_answer_goes(
    start_backend: StartBackend, start_frontend: StartFrontend, connect: Connect
) -> None:
    """It says that it has no room, which the kernel takes for a sign of life."""
    backend = start_backend()
    frontend = start_frontend(backend, send_timeout_s=0.5, send_buffer_bytes=4096)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    with client:
        client.connect(("127.0.0.1", frontend.port))
        wait_until(lambda: len(frontend.server.server_state.connections) == 1)
        client.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 8)
        wait_until(lambda: len(frontend.server.server_state.connections) == 0)


def test_a_client_that_is_slow_to_take_its_answer_stays(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    frontend = start_frontend(start_backend(), send_timeout_s=0.3, send_buffer_bytes=4096)
    whole = frontend.client.get("/openapi.json").content

    def stays() -> bool:
        """False where this thread had no core, and was slower than it wanted to be."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        with client, contextlib.suppress(ConnectionResetError):
            client.connect(("127.0.0.1", frontend.port))
            client.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            read, longest_s = b"", 0.0
            began = last = time.monotonic()
            while part := client.recv(len(whole) // 8):
                read += part
                now = time.monotonic()
                longest_s, last = max(longest_s, now - last), now
                if now - began < 1.2:
                    time.sleep(0.1)
        assert read.endswith(whole) or longest_s > 0.2
        return read.endswith(whole)

    wait_until(stays)


def test_a_body_that_nobody_reads_has_an_end(
    backend: MockBackend, start_frontend: StartFrontend, connect: Connect
) -> None:
    """The answer to a request without a key does not wait for its body."""
    frontend = start_frontend(backend, api_key="secret")
    client = connect(frontend)
    client.sendall(CHUNKED)
    assert answer(client)[0] == 401
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        client.sendall((b"100000\r\n" + b" " * (1 << 20) + b"\r\n") * 100)


def test_a_connection_serves_on_behind_a_body_that_was_too_large(
    backend: MockBackend, start_frontend: StartFrontend, connect: Connect
) -> None:
    frontend = start_frontend(backend, max_body_bytes=1000)
    client = connect(frontend)
    client.sendall(POST + b"content-length: 9000000\r\n\r\n" + b" " * 9_000_000)
    assert answer(client)[0] == 413
    client.sendall(post(max_tokens=2))
    assert answer(client)[0] == 200


def test_a_body_that_is_not_read_to_its_end_ends_the_connection_as_told(
    backend: MockBackend, start_frontend: StartFrontend, connect: Connect
) -> None:
    client = connect(start_frontend(backend, api_key="secret"))
    client.sendall(POST + b"content-length: %d\r\n\r\n" % (connection.MAX_UNREAD + 1))
    head = b""
    while b"\r\n\r\n" not in head:
        head += client.recv(1 << 16)
    assert b"\r\nconnection: close\r\n" in head


@pytest.mark.parametrize(
    ("behind", "told"),
    [
        (b"garbage\r\n\r\n", "not HTTP/1.1"),
        (b"GET / HTTP/1.1\r\nx: " + b"a" * 8 * connection.MAX_HEAD, "65536 bytes"),
        (CHUNKED + b"no size\r\n", "not HTTP/1.1"),
        (b"GET http://[ HTTP/1.1\r\nhost: localhost\r\n\r\n", "not HTTP/1.1"),
    ],
    ids=["garbage", "too large a head", "a bad chunk", "no URL"],
)
def test_what_is_refused_behind_a_request_is_told_behind_its_answer(
    start_backend: StartBackend, start_frontend: StartFrontend, connect: Connect, behind: bytes, told: str
) -> None:
    frontend = start_frontend(start_backend(step_s=0.01))
    client = connect(frontend)
    client.sendall(post(max_tokens=7) + post(max_tokens=3) + behind)
    assert [answer(client)[1]["usage"]["completion_tokens"] for _ in range(2)] == [7, 3]
    status, refused = answer(client)
    assert status in (400, 431)
    assert told in refused["error"]["message"]
    assert is_closed(client)


def test_leaving_is_noticed_behind_what_is_refused(
    start_backend: StartBackend, start_frontend: StartFrontend, connect: Connect
) -> None:
    """F8: nothing is read any more."""
    backend = start_backend(step_s=0.05)
    frontend = start_frontend(backend)
    client = connect(frontend)
    client.sendall(post(max_tokens=400) + b"garbage\r\n\r\n")
    wait_until(lambda: len(backend.accepted) == 1)
    client.close()
    wait_until(lambda: frontend.service.tracker.slots.n_free == 64)
    assert backend.accepted[0].count < 400


def answered(clients: list[socket.socket]) -> list[socket.socket]:
    """Those from which something can be read."""
    return select.select(clients, [], [], 0)[0]


def test_wrong_keys_are_answered_ever_later(
    backend: MockBackend, start_frontend: StartFrontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The right key never waits, and of wrong ones only as many as are answered within LONGEST_S."""
    frontend = start_frontend(backend, api_key="right", drain_timeout_s=0.1)

    def get(key: str) -> int:
        headers = {"authorization": f"Bearer {key}"}
        return httpx.get(f"{frontend.url}/v1/models", headers=headers, timeout=WAIT_S).status_code

    began = time.monotonic()
    assert [get("wrong") for _ in range(8)] == [401] * 8
    assert time.monotonic() - began > 2 * wrong_keys.PAUSE_S

    monkeypatch.setattr(wrong_keys, "FREE", 0)
    monkeypatch.setattr(wrong_keys, "PAUSE_S", WAIT_S)  # for longer than this test takes
    monkeypatch.setattr(wrong_keys, "LONGEST_S", 1.5 * WAIT_S)
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", frontend.port), timeout=WAIT_S))
            for _ in range(12)
        ]
        for client in clients:
            client.sendall(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n")
        wait_until(lambda: len(answered(clients)) == len(clients) - 1, what="all but one answered")
        assert get("wrong") == 429
        assert get("right") == 200
        refused = answered(clients)
        assert len(refused) == len(clients) - 1  # the one that waits does so still
        assert {answer(client)[0] for client in refused} == {429}


@pytest.mark.parametrize(
    ("options", "host", "status"),
    [
        ({}, "localhost:8000", 200),
        ({}, "127.0.0.1", 200),
        ({}, "[::1]:8000", 200),
        ({}, "rebound.example.com:8000", 421),
        ({"allowed_hosts": ("example.com", "::2")}, "Example.com:80", 200),
        ({"allowed_hosts": ("example.com", "::2")}, "[::2]", 200),
        ({"allowed_hosts": ("example.com",)}, "localhost", 421),
        ({"allowed_hosts": ("*",)}, "anything", 200),
        ({"api_key": "k"}, "anything", 401),
    ],
)
def test_a_host_that_this_server_is_not(
    backend: MockBackend,
    start_frontend: StartFrontend,
    options: dict[str, object],
    host: str,
    status: int,
) -> None:
    """Pages whose name leads here have its origin for a browser, and no key to send."""
    frontend = start_frontend(backend, **options)
    response = frontend.client.get("/v1/models", headers={"host": host})
    assert response.status_code == status
    if status == 421:
        assert "--allowed-hosts" in error_of(response, 421)["message"]


@pytest.mark.parametrize("hosts", [b"", b"host: localhost\r\nhost: localhost\r\n"])
def test_a_request_names_one_host(frontend: Frontend, connect: Connect, hosts: bytes) -> None:
    client = connect(frontend)
    client.sendall(b"GET /health HTTP/1.1\r\n" + hosts + b"\r\n")
    assert answer(client)[0] == 400


def test_a_body_without_a_content_type(frontend: Frontend) -> None:
    """Any page can make a browser send that without asking."""
    content = json.dumps({"prompt": "x"}).encode()
    assert "missing" in error_of(frontend.client.post("/v1/completions", content=content), 415)["message"]
