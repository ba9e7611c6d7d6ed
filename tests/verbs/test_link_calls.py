"""What calls of the link over RDMA post, and what they do when the fabric is slow or breaks.

The scenarios are in link_calls.cpp."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from limits import PROGRAM_S


@pytest.mark.parametrize(
    "scenario", ["burst", "poll", "late", "large", "settled", "order", "broken", "down", "silent"]
)
def test_each_call(build_link_program: Callable[..., Path], scenario: str) -> None:
    program = build_link_program("link_calls")
    run = subprocess.run([program, scenario], capture_output=True, text=True, timeout=PROGRAM_S)
    assert run.returncode == 0, run.stderr
