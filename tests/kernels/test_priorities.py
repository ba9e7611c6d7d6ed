"""Requests with priorities, in scripted simulations."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from limits import PROGRAM_S

SCRIPTS = (
    "overtakes", "overtakes_staged", "takes_one_place", "takes_the_least_urgent", "waits_without_a_cache",
    "gives_pages", "shares_steps", "torn_priority",
)  # fmt: skip


@pytest.fixture(scope="module")
def program(build_program: Callable[..., Path]) -> Path:
    return build_program("priorities", ["tests/kernels/simulator/priorities.cpp"], "-O1")


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_more_urgent_comes_first(program: Path, script: str) -> None:
    """S2, S7, S15: in the line, where the batch or the KV cache is full, and where prompts share a step."""
    done = subprocess.run([program, script], capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == 0, done.stdout + done.stderr
