"""Connections that are idle when one of several frontends ends: a request on one of them is answered."""

from __future__ import annotations

import logging
import shutil
import signal
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Frontend, StartFrontend, wait_until
from limits import WAIT_S
from mock_backend import MockBackend
from test_tls import make

N = 16
ASK = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
Connect = Callable[[], socket.socket]


def answer(connection: socket.socket) -> bytes:
    """The head and the body of one answer, or as much of it as came."""
    received = b""
    while b'{"status": "ok"}' not in received and (data := connection.recv(1 << 16)):
        received += data
    return received


def speaking(n: int, connect: Connect) -> list[socket.socket]:
    """Connections that have been used, and are idle now."""
    connections = [connect() for _ in range(n)]
    for connection in connections:
        connection.sendall(ASK)
        assert b"connection: close" not in answer(connection)
    return connections


def rejected(connections: list[socket.socket]) -> int:
    """How many of the requests on these connections are lost."""
    lost = 0
    for connection in connections:
        with connection:
            try:
                connection.sendall(ASK)
                head = answer(connection)
            except OSError:
                head = b""
            lost += not (head.startswith(b"HTTP/1.1 200 OK") and b"connection: close" in head)
    return lost


def ask_to_end(frontend: Frontend) -> None:
    """Returns when the server has heard of it, and has gone on for longer than LINGER_S."""
    frontend.server.handle_exit(signal.SIGTERM, None)
    wait_until(lambda: frontend.server._connections.ending)
    time.sleep(1.5)


def ended(frontend: Frontend, timeout_s: float) -> bool:
    frontend._thread.join(timeout_s)
    return not frontend._thread.is_alive()


def test_nothing_is_lost_on_idle_connections(backend: MockBackend, start_frontend: StartFrontend) -> None:
    frontend = start_frontend(backend, drain_timeout_s=2 * WAIT_S)
    idle = speaking(N, lambda: socket.create_connection(("127.0.0.1", frontend.port), timeout=WAIT_S))
    ask_to_end(frontend)
    assert rejected(idle) == 0
    assert ended(frontend, WAIT_S / 4), "it ends once every connection has had its answer"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
def test_nothing_is_lost_on_idle_connections_over_tls(
    backend: MockBackend, start_frontend: StartFrontend, tmp_path: Path
) -> None:
    certificate, key = make(tmp_path)
    frontend = start_frontend(backend, drain_timeout_s=2 * WAIT_S, tls_cert=certificate, tls_key=key)
    trust = ssl.create_default_context(cafile=str(certificate))

    def connect() -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", frontend.port), timeout=WAIT_S)
        return trust.wrap_socket(plain, server_hostname="127.0.0.1")

    idle = speaking(N, connect)
    ask_to_end(frontend)
    assert rejected(idle) == 0
    assert ended(frontend, WAIT_S / 4)


@pytest.mark.parametrize("signals", [(signal.SIGINT,), (signal.SIGTERM, signal.SIGINT)])
def test_the_end_of_the_whole_server_does_not_wait_for_idle_connections(
    backend: MockBackend,
    start_frontend: StartFrontend,
    caplog: pytest.LogCaptureFixture,
    signals: tuple[signal.Signals, ...],
) -> None:
    """A service manager may send SIGTERM to all processes before the supervisor says SIGINT."""
    caplog.set_level(logging.INFO)
    frontend = start_frontend(backend, drain_timeout_s=2 * WAIT_S)
    (idle,) = speaking(1, lambda: socket.create_connection(("127.0.0.1", frontend.port), timeout=WAIT_S))
    for number in signals:
        frontend.server.handle_exit(number, None)
    assert ended(frontend, WAIT_S / 4)
    idle.close()
    wait_until(lambda: any("closing 1 connections on which no request came" in m for m in caplog.messages))
    assert not frontend.server.force_exit


def test_half_of_the_drain_timeout_bounds_the_wait(
    backend: MockBackend, start_frontend: StartFrontend, caplog: pytest.LogCaptureFixture
) -> None:
    """The other half is for a request that comes last."""
    caplog.set_level(logging.INFO)
    frontend = start_frontend(backend, drain_timeout_s=6.0)
    (idle,) = speaking(1, lambda: socket.create_connection(("127.0.0.1", frontend.port), timeout=WAIT_S))
    frontend.server.handle_exit(signal.SIGTERM, None)
    assert ended(frontend, WAIT_S)
    idle.close()
    (line,) = (m for m in caplog.messages if "closing 1 connections on which no request came" in m)
    assert 3.0 <= float(line.split(" for ")[1].split(" s")[0]) < 6.0
