"""HTTPS: served with a certificate, and refused in one line without a fitting one."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest
from harness import COMPLETION, StartFrontend, wait_until
from limits import PROGRAM_S, WAIT_S
from mock_backend import MockBackend

from blink import cli
from nic_frontend.tls import check_certificate

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
        with pytest.raises(httpx.ReadTimeout):
            client.post("/v1/completions", json=COMPLETION, timeout=0.3)
    wait_until(lambda: frontend.service.metrics.client_disconnects == 1)
    backend.stalled.clear()
    with pytest.raises(httpx.RemoteProtocolError):
        frontend.client.get("/health")  # http to it


def test_files_that_cannot_serve_are_told_in_one_line(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, key = pair
    other = make(tmp_path)[1]
    check_certificate(certificate, key)
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
        check_certificate(certificate, key)
