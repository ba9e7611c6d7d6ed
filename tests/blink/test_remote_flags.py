"""The flags of a ring on another host: what is refused, and with which words."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from blink.address import host_port, verbs_address
from blink.cli import main
from ringbuffer.rdma.exchange_key import VARIABLE


@pytest.mark.parametrize(
    ("text", "found"),
    [("10.0.0.1:7471", ("10.0.0.1", 7471)), ("[fe80::1]:1", ("fe80::1", 1)), ("host:0", ("host", 0))],
)
def test_addresses(text: str, found: tuple[str, int]) -> None:
    assert host_port(text) == found
    assert verbs_address(f"verbs://{text}") == found


@pytest.mark.parametrize("text", ["10.0.0.1", ":80", "host:port", "host:65536", "fe80::1:80", "host:-1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        host_port(text)


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command says, which must fail."""
    with contextlib.suppress(SystemExit):  # of the parser, which never exits with 0 for an error
        assert main(words) != 0
    return capsys.readouterr().err


def test_refusals(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    connect = "--connect=verbs://127.0.0.1:9"
    assert "verbs://HOST:PORT" in told(capsys, "frontend", "demo", "--connect=tcp://127.0.0.1:9")
    assert "not allowed with" in told(capsys, "frontend", "demo", connect, "--ring=x")
    assert f"no key for the ring in ${VARIABLE}" in told(capsys, "frontend", "demo", connect)
    assert "No such file" in told(capsys, "frontend", "demo", connect, f"--ring-key-file={tmp_path / 'key'}")
    assert "need --connect verbs://HOST:PORT" in told(
        capsys, "frontend", "demo", "--ring=x", "--rdma-device=mlx5_0"
    )
    assert "need --rdma-listen HOST:PORT" in told(capsys, "backend", "demo", "--rdma-device=mlx5_0")
    assert "is not HOST:PORT" in told(capsys, "backend", "demo", "--rdma-listen=7471")
