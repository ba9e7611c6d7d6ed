"""What a sweep's machine measures of itself and of its servers, with a pretended GPU."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import bench_serve, laboratory
from bench.bench_serve import Client
from bench.laboratory import Cores, Machine, Setting
from bench.servers import Server
from free_port import free_port
from limits import WAIT_S

CORE = min(os.sched_getaffinity(0))
HEALTH = """
import http.server, pathlib, sys

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ill = self.path == "/health" and pathlib.Path(sys.argv[2]).exists()
        self.send_response(503 if ill else 200)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


class Pretended(Server):
    """Its program is HEALTH, and the model the file that makes it ill."""

    name = "pretended"

    def base(self, arguments: argparse.Namespace, model: Path) -> list[str]:
        # Another one, which no client of other tests is given before the program has it.
        self.port = free_port()
        return [sys.executable, "-c", HEALTH, str(self.port), str(model)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    arguments = argparse.Namespace(server_cores=(CORE,), start_timeout=WAIT_S, server_flag=None)
    found = Pretended(arguments, tmp_path / "ill", False)
    with found.running(tmp_path / "log"):
        yield found


def test_a_server_that_was_killed_has_ended(server: Server) -> None:
    assert server.ended() is None
    server.process.kill()
    server.process.wait(WAIT_S)
    assert server.ended() == "pretended ended with SIGKILL"


def test_a_server_whose_gpu_part_has_died_has_ended(server: Server, tmp_path: Path) -> None:
    (tmp_path / "ill").touch()
    assert server.ended() == "pretended is not healthy any more: status 503"


def test_a_server_that_refuses_connections_has_ended(server: Server) -> None:
    server.port, port = 1, server.port  # where nobody listens
    told = server.ended()
    assert told is not None
    assert told.startswith("pretended does not answer any more: ConnectionRefusedError")
    server.port = port
    assert server.ended() is None


def test_a_load_that_fails_has_measured_nothing_whatever_it_wrote(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "python"
    program.write_text(
        '#!/bin/sh\nfor word; do case $word in --json=*) echo {} >"${word#*=}";; esac; done\nexit 1\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    out = tmp_path / "out.json"
    with pytest.raises(SystemExit, match="`blink bench serve` failed with status 1"):
        bench_serve.bench_serve(server, "m", out, Client((CORE,), 1, 1), 1.0, 1.0, [], WAIT_S)
    assert out.exists()


def test_an_idle_gpu_is_measured_before_it_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    is_warm = False

    def read_rate(_: Machine) -> float:
        nonlocal is_warm
        is_warm = True
        return 4.0

    monkeypatch.setattr(Machine, "_read_rate", read_rate)
    monkeypatch.setattr(Machine, "watts", lambda _: 120.0 if is_warm else 75.0)
    monkeypatch.setattr(laboratory, "of_gpu", lambda _: "a GPU")
    found = Machine(Setting(Cores.of(range(16)), tmp_path, tmp_path, commit="abc")).origin()
    assert (found["idle_watts"], found["read_tb_per_s"]) == (75.0, 4.0)
