"""What a service tells systemd, over the socket that it names."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from limits import WAIT_S
from serve_process import ROOT

from blink import systemd
from blink.systemd import Service


def listener(path: Path) -> socket.socket:
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.bind(str(path))
    heard.settimeout(WAIT_S)
    return heard


def test_a_service_says_that_it_is_ready_and_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    now = [0.0]
    monkeypatch.setattr(systemd, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with listener(tmp_path / "notify") as heard:
        service = Service()
        assert "NOTIFY_SOCKET" not in os.environ  # children are no services
        service.ready()
        assert heard.recv(100) == b"READY=1"
        for passed_ms in range(1000):
            now[0] = passed_ms / 1000
            service.lives()
        heard.setblocking(False)
        n = 0
        while True:
            try:
                assert heard.recv(100) == b"WATCHDOG=1"
                n += 1
            except BlockingIOError:
                break
        assert 5 <= n <= 10  # more often than every 0.4 s, and not each time


@pytest.mark.parametrize("address", ["", "/nowhere/notify", "@blink-nobody-listens"])
def test_without_anybody_who_listens_nothing_happens(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "1")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    service = Service()
    service.ready()
    service.lives()


@pytest.mark.slow
def test_both_planes_tell_that_they_live(tmp_path: Path) -> None:
    ring, heard = f"systemd-{os.getpid()}", {}
    processes = []
    commands = {
        "backend": ["backend", "demo", "--device=cpu", "--threads=1", f"--ring={ring}"],
        "frontend": ["frontend", "demo", "--port=0", f"--ring={ring}"],
    }
    try:
        for plane, command in commands.items():
            heard[plane] = listener(tmp_path / plane)
            told = {"NOTIFY_SOCKET": str(tmp_path / plane), "WATCHDOG_USEC": "1000000"}
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "blink", *command],
                    cwd=ROOT,
                    env={**os.environ, **told},
                    stderr=subprocess.DEVNULL,
                )
            )
            assert heard[plane].recv(100) == b"READY=1"
            assert [heard[plane].recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(WAIT_S)
        for one in heard.values():
            one.close()
