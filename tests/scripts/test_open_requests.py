"""Many requests that are open at once: none is lost, and all that they held comes back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import scheduler_turns
from limits import PROGRAM_S

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.alone
def test_five_hundred_streams_at_once_lose_nothing() -> None:
    """scripts/bench/open_requests.py, which opens 4,096 when somebody has the time."""
    command = [
        sys.executable,
        "scripts/bench/open_requests.py",
        "--requests=512",
        "--tokens=24",
        "--rounds=1",
        "--hold=0.5",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("\n0 faults\n")


@pytest.fixture(scope="module")
def turns(build_program: Callable[..., Path]) -> Callable[[int], scheduler_turns.Turns]:
    program = build_program("scheduler_turns", scheduler_turns.SOURCES, *scheduler_turns.FLAGS)
    return lambda n_open: scheduler_turns.measured(program, n_open, max_batch=128, tokens=8)


@pytest.mark.slow
def test_a_scan_of_all_slots_is_no_work(turns: Callable[[int], scheduler_turns.Turns]) -> None:
    """S18: whatever waits, a turn of the loop is short. The program fails where a request does not end."""
    found = turns(4096)
    assert found["scan"]["p50"] < 50_000  # 2,500 were measured
    assert found["admit"]["p50"] < 5_000_000  # 240,000, for 16 requests, on one thread
