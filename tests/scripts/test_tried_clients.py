"""One of the clients that are tried, against the server that the others are tried against."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PROGRAM_S

CLIENTS = Path(__file__).resolve().parents[2] / "scripts" / "clients"


@pytest.mark.slow
def test_the_openai_client() -> None:
    """This environment has it. Its structured answers are random ones."""
    with subprocess.Popen(
        [sys.executable, CLIENTS / "server.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        url, storing = (server.stdout.readline().strip() for _ in range(2))
        urls = {"BLINK_URL": url, "BLINK_STORING_URL": storing}
        environment = {**os.environ, **urls, "OPENAI_API_KEY": "none"}
        command = [sys.executable, CLIENTS / "python" / "openai_python.py"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PROGRAM_S)
        server.stdin.close()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("openai")
    assert server.returncode == 0
