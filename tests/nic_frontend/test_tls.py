"""HTTPS: served with a certificate, and refused in one line without a fitting one."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest
from harness import COMPLETION, StartFrontend, wait_until
from limits import PROGRAM_S, WAIT_S
from mock_backend import MockBackend

from blink import cli
from nic_frontend.http import handshake
from nic_frontend.http.tls import Certificate, server_context

BODY = json.dumps(COMPLETION).encode()
REQUEST = b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
REQUEST += b"content-length: %d\r\n\r\n" % len(BODY) + BODY
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


def make(directory: Path, *more: str) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    certificate, key = directory / "cert.pem", directory / "key.pem"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    names = ["-subj", "/CN=blink", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = [
        "openssl", "req", "-x509", *curve, *names, *(more or ["-nodes"]), "-keyout", str(key),
        "-out", str(certificate), "-days", "2",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=PROGRAM_S)
    return certificate, key


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make(tmp_path_factory.mktemp("tls"))


def test_it_serves_https_streams_and_notices_clients_that_leave(
    backend: MockBackend, start_frontend: StartFrontend, pair: tuple[Path, Path]
) -> None:
    certificate, key = pair
    frontend = start_frontend(backend, tls_cert=certificate, tls_key=key)
    trust = ssl.create_default_context(cafile=str(certificate))
    with httpx.Client(base_url=f"https://127.0.0.1:{frontend.port}", verify=trust, timeout=WAIT_S) as client:
        assert client.get("/health").json() == {"status": "ok"}
        with client.stream("POST", "/v1/completions", json={**COMPLETION, "stream": True}) as answer:
            assert answer.read().endswith(b"data: [DONE]\n\n")
    backend.stalled.set()
    backend.accepted.clear()
    with trust.wrap_socket(silent(frontend.port), server_hostname="127.0.0.1") as leaving:
        leaving.sendall(REQUEST)
        wait_until(lambda: backend.accepted)
    wait_until(lambda: frontend.service.metrics.client_disconnects == 1)
    backend.stalled.clear()
    with pytest.raises(httpx.RemoteProtocolError):
        frontend.client.get("/health")  # http to it


def silent(port: int) -> socket.socket:
    """A connection whose handshake its client never begins."""
    return socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)


def test_handshakes_count_as_connections_and_make_room(
    backend: MockBackend,
    start_frontend: StartFrontend,
    pair: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Silent clients hold no more connections than the limit, and keep nobody out."""
    monkeypatch.setattr(handshake, "HANDSHAKE_S", WAIT_S)
    certificate, key = pair
    frontend = start_frontend(backend, tls_cert=certificate, tls_key=key, max_connections=8)
    connections = frontend.server._connections
    held = [silent(frontend.port) for _ in range(30)]
    try:
        wait_until(lambda: connections.dropped == 22 and len(connections) == 8)
        trust = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(
            base_url=f"https://127.0.0.1:{frontend.port}", verify=trust, timeout=WAIT_S
        ) as client:
            assert client.get("/health").status_code == 200
            assert len(connections) <= 8
    finally:
        for connection in held:
            connection.close()
    wait_until(lambda: len(connections) == 0)


def test_a_handshake_has_a_limit_of_time(
    backend: MockBackend,
    start_frontend: StartFrontend,
    pair: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert handshake.HANDSHAKE_S == 5
    monkeypatch.setattr(handshake, "HANDSHAKE_S", 0.2)
    certificate, key = pair
    frontend = start_frontend(backend, tls_cert=certificate, tls_key=key)
    with silent(frontend.port) as connection:
        assert connection.recv(1) == b""
    wait_until(lambda: len(frontend.server._connections) == 0)


def test_what_comes_with_the_end_of_the_handshake_is_served(
    backend: MockBackend, start_frontend: StartFrontend, pair: tuple[Path, Path]
) -> None:
    """A client may send its last flight and its request in one packet."""
    certificate, key = pair
    frontend = start_frontend(backend, tls_cert=certificate, tls_key=key)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    trust = ssl.create_default_context(cafile=str(certificate))
    tls = trust.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with silent(frontend.port) as connection:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                connection.sendall(outgoing.read())
                incoming.write(connection.recv(1 << 16))
        tls.write(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        connection.sendall(outgoing.read())
        answer = b""
        while not answer.endswith(b'{"status": "ok"}'):
            try:
                answer += tls.read(1 << 16)
            except ssl.SSLWantReadError:
                incoming.write(connection.recv(1 << 16))
        assert answer.startswith(b"HTTP/1.1 200 OK")


def test_a_renewed_certificate_is_used_and_a_broken_one_is_not(tmp_path: Path) -> None:
    certificate, key = make(tmp_path)
    served = Certificate(certificate, key)
    first = served.context
    certificate.write_text("nothing")
    served.read_again()
    assert served.context is first
    make(tmp_path)
    served.read_again()
    assert served.context is not first


def test_files_that_cannot_serve_are_told_in_one_line(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, key = pair
    other = make(tmp_path)[1]
    server_context(certificate, key)
    for flags, message in (
        ([f"--tls-cert={certificate}", f"--tls-key={other}"], "is not that of the certificate in"),
        ([f"--tls-cert={tmp_path}/none.pem"], "No such file or directory"),
        ([f"--tls-cert={certificate}"], "both must be PEM"),
        ([f"--tls-key={key}"], "--tls-key needs --tls-cert"),
    ):
        assert cli.main(["serve", "demo", "--port=0", *flags]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line


def test_a_key_with_a_password_is_refused_and_asks_for_none(tmp_path: Path) -> None:
    certificate, key = make(tmp_path, "-passout", "pass:secret")
    with pytest.raises(ValueError, match="is encrypted: give one without a password"):
        server_context(certificate, key)


def signed(directory: Path, ca: Path, ca_key: Path) -> tuple[Path, Path]:
    """A client's certificate, which the other one signs, and its key."""
    certificate, key = directory / "client.pem", directory / "client-key.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", "/CN=client", "-CA", str(ca), "-CAkey", str(ca_key), "-keyout", str(key),
            "-out", str(certificate), "-days", "2",
        ],
        check=True, capture_output=True, timeout=PROGRAM_S,
    )  # fmt: skip
    return certificate, key


def test_clients_without_a_certificate_are_turned_away(
    backend: MockBackend,
    start_frontend: StartFrontend,
    pair: tuple[Path, Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "nic_frontend.http.handshake")
    certificate, key = pair
    frontend = start_frontend(backend, tls_cert=certificate, tls_key=key, tls_client_ca=certificate)
    url = f"https://127.0.0.1:{frontend.port}/health"
    own = ssl.create_default_context(cafile=str(certificate))
    own.load_cert_chain(*signed(tmp_path, certificate, key))
    assert httpx.get(url, verify=own, timeout=WAIT_S).status_code == 200
    stranger = ssl.create_default_context(cafile=str(certificate))
    for identity in (None, make(tmp_path)):
        if identity:
            stranger.load_cert_chain(*identity)
        with pytest.raises(httpx.TransportError):
            httpx.get(url, verify=stranger, timeout=WAIT_S)
    wait_until(lambda: len(frontend.server._connections) == 0)
    assert "before it is one of TLS: [SSL: PEER_DID_NOT_RETURN_A_CERTIFICATE]" in caplog.text
    assert "before it is one of TLS: [SSL: CERTIFICATE_VERIFY_FAILED]" in caplog.text


def test_what_cannot_sign_clients_certificates_is_refused(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nno base64\n-----END CERTIFICATE-----\n")
    with pytest.raises(ValueError, match=r"--tls-client-ca: .*broken\.pem has no certificate in PEM"):
        server_context(*pair, broken)
    assert cli.main(["frontend", "demo", "--tls-client-ca", str(pair[0])]) == 1
    assert "--tls-client-ca needs --tls-cert" in capsys.readouterr().err
