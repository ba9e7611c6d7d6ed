"""A frontend that listens on a Unix socket: served as over TCP, and alone at its path."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from harness import COMPLETION, Frontend, StartFrontend, wait_until
from limits import WAIT_S
from mock_backend import MockBackend

from nic_frontend.http.connection import Connection
from nic_frontend.http.listener import listening_at
from nic_frontend.options import FrontendOptions
from nic_frontend.server import listening

STREAM = COMPLETION | {"stream": True}
REQUEST = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "blink.sock"


def connected(path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.settimeout(WAIT_S)
    found.connect(str(path))
    return found


def test_it_serves_streams_and_any_host(
    backend: MockBackend, start_frontend: StartFrontend, path: Path
) -> None:
    frontend = start_frontend(backend, uds=path)
    assert frontend.client.get("/health", headers={"host": "anything.example"}).status_code == 200
    with frontend.client.stream("POST", "/v1/completions", json=STREAM) as answer:
        assert answer.read().endswith(b"data: [DONE]\n\n")
    frontend.stop()
    assert not path.exists()


def test_a_client_that_leaves_is_noticed(
    backend: MockBackend, start_frontend: StartFrontend, path: Path
) -> None:
    frontend = start_frontend(backend, uds=path)
    backend.stalled.set()
    body = b'{"prompt": "hello", "max_tokens": 2}'
    with connected(path) as client:
        client.sendall(REQUEST + b"content-length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: bool(backend.accepted))
    wait_until(lambda: frontend.service.metrics.client_disconnects == 1)
    backend.stalled.clear()


def test_one_that_leaves_with_requests_in_the_queue_is_noticed(
    backend: MockBackend, start_frontend: StartFrontend, path: Path
) -> None:
    """The server does not read then, so that no read tells it."""
    frontend = start_frontend(backend, uds=path)
    backend.stalled.set()
    body = b'{"prompt": "hello", "max_tokens": 2}'
    request = REQUEST + b"content-length: %d\r\n\r\n" % len(body) + body
    with connected(path) as client:
        client.sendall(request + request)
        wait_until(lambda: bool(backend.accepted))
    wait_until(lambda: frontend.service.metrics.client_disconnects == 1)
    backend.stalled.clear()


def test_one_that_reads_nothing_is_dropped(
    backend: MockBackend, start_frontend: StartFrontend, path: Path
) -> None:
    frontend = start_frontend(backend, uds=path, send_timeout_s=0.5, send_buffer_bytes=4096)
    body = b'{"prompt": "hello", "max_tokens": 400, "stream": true}'
    request = REQUEST + b"content-length: %d\r\n\r\n" % len(body) + body
    with connected(path) as client:
        client.sendall(request)
        wait_until(lambda: backend.accepted)
        wait_until(lambda: len(frontend.server._connections) == 0)
    assert frontend.client.get("/health").status_code == 200


def test_one_that_reads_slowly_is_not(
    backend: MockBackend, start_frontend: StartFrontend, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked at again and again while it reads, and each time it has taken something."""
    has_read, looks = threading.Event(), list[bool]()  # whether another look follows
    judge = Connection._look_at_writing

    def look(connection: Connection, before: object) -> None:
        if has_read.is_set():
            has_read.clear()
            judge(connection, before)
            looks.append(connection._stall_timer is not None)
        else:  # a busy machine may keep the client from reading for longer than the server's patience
            later = connection.loop.call_later(connection.stall_s, connection._look_at_writing, before)
            connection._stall_timer = later

    monkeypatch.setattr(Connection, "_look_at_writing", look)
    frontend = start_frontend(backend, uds=path, send_timeout_s=0.02, send_buffer_bytes=4096)
    # More than the kernel takes, so that the server has to wait with the rest.
    body = b'{"prompt": "hello", "max_tokens": 400, "stream": true}'
    text = b""
    with connected(path) as client:
        client.sendall(REQUEST + b"content-length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: frontend.service.metrics.finished["length"] == 1)  # the answer waits to be read
        while b"[DONE]" not in text:
            text += (chunk := some(client))
            assert chunk, text[-200:]
            if not looks or looks[-1]:
                n_before = len(looks)
                has_read.set()
                wait_until(lambda n=n_before: len(looks) > n)  # type: ignore[misc]
    assert len(looks) > 1
    assert text.count(b"data: {") == 400


def some(client: socket.socket) -> bytes:
    """What comes, up to some thousand bytes: the kernel tells the server of no less."""
    text = b""
    while len(text) < 6000 and b"[DONE]" not in text and (chunk := client.recv(1500)):
        text += chunk
    return text


def test_clients_are_told_apart(backend: MockBackend, start_frontend: StartFrontend, path: Path) -> None:
    """Else they would take turns as one (S2)."""
    frontend = start_frontend(backend, uds=path)
    frontend.client.post("/v1/completions", json=COMPLETION)
    frontend.disconnect()
    frontend.client.post("/v1/completions", json=COMPLETION)
    numbers = [int(row.descriptor["client"]) for row in backend.accepted if row.descriptor is not None]
    assert len(set(numbers)) == 2


def test_a_path_has_one_server(
    backend: MockBackend, start_frontend: StartFrontend, path: Path, model_dir: Path
) -> None:
    frontend: Frontend = start_frontend(backend, uds=path)
    options = FrontendOptions(ring=backend.path, model_dir=model_dir, uds=path)
    with pytest.raises(FileExistsError, match="another server listens at"), listening(options):
        pass
    assert frontend.client.get("/health").status_code == 200


def test_a_server_whose_queue_is_full_has_its_path(path: Path) -> None:
    """And whoever looks is not kept waiting."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen(0)
        with connected(path), pytest.raises(FileExistsError, match="another server"), listening_at(path):
            pass
    assert path.exists()


def test_the_file_of_a_server_that_was_killed_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as killed:
        killed.bind(str(path))
    with listening_at(path), connected(path):
        pass
    assert not path.exists()


def test_a_file_that_is_no_socket_stays(path: Path) -> None:
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="exists and is no socket"), listening_at(path):
        pass
    assert path.read_text() == "mine"


def test_a_path_that_cannot_be_is_named(path: Path) -> None:
    below = path / "x.sock"
    with pytest.raises(FileNotFoundError, match=str(below)), listening_at(below):
        pass


def test_the_path_of_the_next_server_stays(path: Path) -> None:
    """Somebody may take the file away while the server runs, and start another."""
    with listening_at(path):
        path.unlink()
        path.write_text("the next one's")
    assert path.exists()


def test_a_trusted_proxy_says_who_its_client_is(
    backend: MockBackend, start_frontend: StartFrontend, path: Path
) -> None:
    """Over one connection."""
    frontend = start_frontend(backend, uds=path, trusted_proxies=("*",))
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.1"):
        frontend.client.post(
            "/v1/completions", json=COMPLETION, headers={"x-forwarded-for": address}
        ).raise_for_status()
    first, second, third = (
        int(row.descriptor["client"]) for row in backend.accepted if row.descriptor is not None
    )
    assert first == third != second
