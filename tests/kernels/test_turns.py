"""Clients take turns, in scripted simulations."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from limits import PROGRAM_S

SCRIPTS = (
    "many_prompts", "full_batch", "one_place_each", "full_pages", "one_at_a_time", "newcomers",
    "torn_client",
)  # fmt: skip


@pytest.fixture(scope="module")
def program(build_program: Callable[..., Path]) -> Path:
    return build_program("turns", ["tests/kernels/simulator/turns.cpp"], "-O1")


@pytest.mark.parametrize("script", SCRIPTS)
def test_no_client_is_in_anothers_way(program: Path, script: str) -> None:
    """S2, S7: by more than a turn, whatever it asks for; and nobody waits for ever."""
    done = subprocess.run([program, script], capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("script", ["refused", pytest.param("never_whole", marks=pytest.mark.slow)])
def test_nobody_gives_way_to_what_cannot_run(program: Path, script: str) -> None:
    """S7."""
    done = subprocess.run([program, script], capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == 0, done.stdout + done.stderr
