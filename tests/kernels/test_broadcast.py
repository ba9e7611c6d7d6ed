"""What one of the scheduler's threads tells the others."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from limits import PROGRAM_S


def test_what_other_threads_have_does_not_matter(build_program: Callable[..., Path]) -> None:
    program = build_program("broadcast", ["tests/kernels/simulator/broadcast.cpp"], "-O1", "-pthread")
    assert subprocess.run([program], timeout=PROGRAM_S).returncode == 0
