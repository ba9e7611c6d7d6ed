"""What a connection carries beside bodies and answers: heads of every kind, offers to upgrade, pipelines."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from harness import Frontend, StartBackend, StartFrontend, wait_until
from limits import WAIT_S

from nic_frontend.http import connection

pytestmark = pytest.mark.usefixtures("kept_frontend")


@pytest.fixture
def client(frontend: Frontend) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", frontend.port), timeout=WAIT_S) as opened:
        yield opened


POST = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


def post(fields: str = "", **body: Any) -> bytes:
    content = json.dumps({"prompt": "x", "max_tokens": 2, **body}).encode()
    return POST + f"{fields}content-length: {len(content)}\r\n\r\n".encode() + content


def answer(client: socket.socket) -> tuple[int, dict[str, Any]]:
    """Status and object of one answer, which leaves the connection at the next."""
    reader = client.makefile("rb", buffering=0)
    status = int(reader.readline().split()[1])
    length = 0
    while (line := reader.readline()) != b"\r\n":
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    content = b""
    while len(content) < length:
        content += reader.read(length - len(content)) or b""
    return status, json.loads(content)


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


OFFERS = [
    "upgrade: h2c\r\nconnection: Upgrade, HTTP2-Settings\r\nhttp2-settings: AAMAAABk\r\n",
    "connection: upgrade\r\nupgrade: websocket\r\n",
]


@pytest.mark.parametrize("fields", OFFERS, ids=["h2c", "websocket"])
def test_offers_to_upgrade_are_not_taken(client: socket.socket, fields: str, caplog: Any) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            client.sendall(post(fields))
            status, body = answer(client)
            assert (status, body["usage"]["completion_tokens"]) == (200, 2)
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


def test_an_offer_in_pieces(client: socket.socket) -> None:
    request = post(OFFERS[0])
    for at in range(0, len(request), 16):
        client.sendall(request[at : at + 16])
        time.sleep(0.001)
    assert answer(client)[0] == 200


LARGE = {"n": 8, "max_tokens": 100, "ignore_eos": True, "logprobs": 20}


@pytest.mark.parametrize("version", ["0.9", "1.0"])
@pytest.mark.parametrize("more", [{}, LARGE, {"stream": True}], ids=["small", "large", "stream"])
def test_versions_without_chunks(client: socket.socket, version: str, more: dict[str, Any]) -> None:
    """The end of the connection is the end of an answer whose length is not said."""
    client.sendall(
        post("connection: keep-alive\r\n", **more).replace(b"HTTP/1.1", f"HTTP/{version}".encode(), 1)
    )
    with client.makefile("rb") as reader:
        head, _, content = reader.read().partition(b"\r\n\r\n")
    fields = head.split(b"\r\n")
    assert (b"connection: close" in fields, b"transfer-encoding: chunked" in fields) == (True, False)
    if "stream" in more:
        *events, done, rest = content.split(b"\n\n")
        assert all(json.loads(event.removeprefix(b"data: "))["choices"] for event in events)
        assert (done, rest) == (b"data: [DONE]", b"")
    else:
        assert len(json.loads(content)["choices"]) == more.get("n", 1)
        assert more or b"content-length: %d" % len(content) in fields


def test_no_proxy(client: socket.socket) -> None:
    client.sendall(b"CONNECT example.org:443 HTTP/1.1\r\nhost: example.org\r\n\r\n")
    status, body = answer(client)
    assert (status, body["error"]["type"]) == (400, "invalid_request_error")
    assert is_closed(client)


def test_what_is_not_http(client: socket.socket) -> None:
    client.sendall(b"\x16\x03\x01 hello\r\n\r\n")
    status, body = answer(client)
    assert (status, body["error"]["type"]) == (400, "invalid_request_error")
    assert is_closed(client)


@pytest.mark.parametrize("line", [b"x: " + b"a" * 1000 + b"\r\n", b"a" * 1000], ids=["lines", "one line"])
def test_heads_have_a_largest_size(frontend: Frontend, client: socket.socket, line: bytes) -> None:
    """F9."""
    client.sendall(post("x: " + "a" * 60_000 + "\r\n"))
    assert answer(client)[0] == 200
    client.sendall(b"GET /health HTTP/1.1\r\nx: \r\nx: ")
    with pytest.raises((BrokenPipeError, ConnectionResetError)):  # the server does not read on
        client.sendall(line * 20_000)
    wait_until(lambda: len(frontend.server.server_state.connections) == 0)


def test_a_head_that_is_too_large_is_told(client: socket.socket) -> None:
    client.sendall(b"GET /" + b"a" * (connection.MAX_HEAD - 5))
    status, body = answer(client)
    assert status == 431
    assert "65536 bytes" in body["error"]["message"]
    assert is_closed(client)


CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
CONTENT = json.dumps({"prompt": "x", "max_tokens": 2}).encode()
CHUNK = b"%x\r\n%s\r\n" % (len(CONTENT), CONTENT)


@pytest.mark.parametrize("path", [b"/v1/completions", b"/nothing"], ids=["body awaited", "answered before"])
@pytest.mark.parametrize(
    ("opening", "unit"),
    [
        (CHUNK + b"0\r\n", b"a:b\r\n" * 2000),
        (CHUNK + b"0\r\nx: ", b"a" * 10_000),
        (b"1e;", b"a" * 10_000),
    ],
    ids=["trailers", "one trailer", "one extension"],
)
def test_what_surrounds_a_body_is_bounded(
    frontend: Frontend, client: socket.socket, path: bytes, opening: bytes, unit: bytes
) -> None:
    """F9, whatever comes and whoever sends it: the key is checked later."""
    client.sendall(CHUNKED.replace(b"/v1/completions", path) + opening)
    if path == b"/nothing":
        assert answer(client)[0] == 404
    with pytest.raises((BrokenPipeError, ConnectionResetError)):  # the server does not read on
        client.sendall(unit * 2000)
    wait_until(lambda: len(frontend.server.server_state.connections) == 0)


@pytest.mark.parametrize(
    ("opening", "rest", "told"),
    [
        (CHUNK, b"0\r\na: b\r\n\r\n", "trailers"),
        (CHUNK, b"0\r\nx: " + b"a" * (16 << 10), "16384 bytes"),
        (b"", b"1;" + b"a" * (16 << 10), "16384 bytes"),
        (CHUNK, b"no size\r\n", "not HTTP/1.1"),
    ],
    ids=["a trailer", "half a trailer", "an extension", "no chunk"],
)
def test_why_a_body_is_refused_is_told(
    frontend: Frontend, client: socket.socket, opening: bytes, rest: bytes, told: str
) -> None:
    client.sendall(CHUNKED + opening)
    time.sleep(0.05)  # its handler waits for the body
    client.sendall(rest)
    status, refused = answer(client)
    assert (status, refused["error"]["type"]) == (400, "invalid_request_error")
    assert told in refused["error"]["message"]
    assert is_closed(client)
    assert frontend.client.post("/v1/completions", json={"prompt": "x", "max_tokens": 2}).status_code == 200


def test_a_body_in_many_small_chunks(client: socket.socket) -> None:
    """Their sizes and extensions together are larger than what one may have."""
    padded = json.dumps({"prompt": "x", "max_tokens": 2, "user": "u" * 5000}).encode()
    client.sendall(CHUNKED + b"".join(b"1;ab=cd\r\n%c\r\n" % byte for byte in padded))
    client.sendall(b"0\r\n\r\n")
    assert answer(client)[1]["usage"]["completion_tokens"] == 2


HALF = b"GET /health HTTP/1.1\r\nhost: localhost\r\n"


@pytest.mark.parametrize(
    ("first", "more"),
    [
        (b"", b""),
        (b"", b"\r\n"),
        (b"", b"GET /hea"),
        (b"", HALF),
        (HALF + b"\r\n", b"\r\n"),
        (HALF + b"\r\n", HALF),
    ],
)
def test_heads_have_a_longest_time(
    frontend: Frontend, monkeypatch: pytest.MonkeyPatch, first: bytes, more: bytes
) -> None:
    """F9."""
    if not first:
        monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 0.3)
    with socket.create_connection(("127.0.0.1", frontend.port), timeout=WAIT_S) as client:
        if first:
            client.sendall(first)
            assert answer(client)[0] == 200
            monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 0.3)
        client.sendall(more)
        assert is_closed(client)


def test_an_answer_may_take_longer_than_a_head(
    start_backend: StartBackend, start_frontend: StartFrontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 1.0)
    frontend = start_frontend(start_backend(step_s=0.05))
    answered = frontend.client.post("/v1/completions", json={"prompt": "x", "max_tokens": 30}).json()
    assert answered["usage"]["completion_tokens"] == 30


def test_a_body_that_does_not_come(start_backend: StartBackend, start_frontend: StartFrontend) -> None:
    frontend = start_frontend(start_backend(), body_timeout_s=0.2)
    with socket.create_connection(("127.0.0.1", frontend.port), timeout=WAIT_S) as client:
        client.sendall(post()[:-1])
        assert answer(client)[0] == 408
        assert is_closed(client)


def test_pipelined_requests_are_answered_in_order(client: socket.socket) -> None:
    client.sendall(b"".join(post(OFFERS[0] if n == 3 else "", max_tokens=n) for n in range(1, 6)))
    assert [answer(client)[1]["usage"]["completion_tokens"] for _ in range(5)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("stream", [False, True])
def test_leaving_is_noticed_while_a_pipelined_request_waits(
    start_backend: StartBackend, start_frontend: StartFrontend, stream: bool
) -> None:
    """F8."""
    backend = start_backend(step_s=0.05)
    frontend = start_frontend(backend)
    with socket.create_connection(("127.0.0.1", frontend.port), timeout=WAIT_S) as client:
        client.sendall(post(max_tokens=400, stream=stream) + post(max_tokens=400))
        wait_until(lambda: len(backend.accepted) == 1)
    wait_until(lambda: frontend.service.metrics.client_disconnects == 1)
    wait_until(lambda: frontend.service.tracker.slots.n_free == 64)
    assert len(backend.accepted) == 1
    assert backend.accepted[0].count < 400
