"""A frontend that writes anything into what it may write, beside two that keep the protocol: these get every
answer right, every invariant holds, and the scheduler touches no memory but its own (the address sanitizer).
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fuzz.ring import FLAGS, SOURCE
from limits import PROGRAM_S


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 5))])
def test_a_hostile_lease_harms_nobody_else(build_program: Callable[..., Path], seed: int) -> None:
    program = build_program("hostile", [SOURCE], *FLAGS)
    done = subprocess.run([program, "5000", str(seed)], capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == 0, done.stdout + done.stderr
