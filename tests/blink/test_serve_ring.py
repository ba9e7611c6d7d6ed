"""The name of the ring of `blink serve`, which follows from where it listens."""

from __future__ import annotations

import argparse
import os
import socket
from pathlib import Path

import pytest

from blink import serve


def ring_of(*flags: str) -> str:
    """Of a server on a Unix socket."""
    parser = argparse.ArgumentParser()
    serve.configure(parser)
    namespace = parser.parse_args(["demo", *flags])
    namespace.debug = False
    with socket.socket(socket.AF_UNIX) as listener:
        return serve.supervisor_options(namespace, "demo", 0, listener).ring.name


def test_each_socket_has_a_ring_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However its path is written."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    os.symlink(tmp_path / "a", tmp_path / "link")
    monkeypatch.chdir(tmp_path / "a")
    first, second = (ring_of(f"--uds={tmp_path}/{name}/blink.sock") for name in ("a", "b"))
    assert first.startswith("blink-serve-blink-")
    assert first != second
    assert ring_of("--uds=blink.sock") == first
    assert ring_of(f"--uds={tmp_path}/link/blink.sock") == first
    assert ring_of(f"--uds={tmp_path}/a/blink.socket") != first
    assert ring_of("--uds=blink.sock", "--ring=mine") == "blink-mine"
