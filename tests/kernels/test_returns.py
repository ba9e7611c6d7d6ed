"""What requests leave behind when many or long ones end, in scripted simulations."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from limits import PROGRAM_S


@pytest.mark.parametrize("script", ["batch_ends", "long_one_ends"])
def test_what_has_ended_gives_its_pages_back_in_parts(
    build_program: Callable[..., Path], script: str
) -> None:
    """S1, S18: no turn of the loop takes long, whoever ends, and nothing is lost."""
    program = build_program("returns", ["tests/kernels/simulator/returns.cpp"], "-O1")
    done = subprocess.run([program, script], capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == 0, done.stdout + done.stderr
