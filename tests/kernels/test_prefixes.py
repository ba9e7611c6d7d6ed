"""Prompts that begin alike, in scripted simulations: their beginning is computed once."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from limits import PROGRAM_S

Play = Callable[..., None]


@pytest.fixture(scope="module")
def play(build_program: Callable[..., Path]) -> Play:
    """play(script): runs a script of simulator/prefixes.cpp."""
    program = build_program("prefixes", ["tests/kernels/simulator/prefixes.cpp"], "-O1")

    def run(script: str) -> None:
        done = subprocess.run([program, script], capture_output=True, text=True, timeout=PROGRAM_S)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("script", ["burst", "equal", "conversation"])
def test_nothing_is_computed_twice(play: Play, script: str) -> None:
    """S16: also when it arrives in the same step, and what was answered."""
    play(script)


@pytest.mark.parametrize("script", ["salts", "fault", "fault_shared", "fault_behind_a_page"])
def test_nobody_finds_what_is_not_for_others(play: Play, script: str) -> None:
    """S17, R7."""
    play(script)


def test_the_oldest_and_deepest_pages_make_room(play: Play) -> None:
    """S16."""
    play("eviction")


def test_pages_are_found_as_quickly_after_many_were_evicted(play: Play) -> None:
    """S10, S16."""
    play("hot_prompt")


@pytest.mark.parametrize("requests", [2_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_nothing_is_lost_and_nothing_grows(build_program: Callable[..., Path], requests: int) -> None:
    """S1, S16: random requests over 1,000 beginnings, under eviction; every answer is right."""
    program = build_program("soak", ["tests/kernels/simulator/soak.cpp"], "-O2")
    done = subprocess.run([program, str(requests), "1"], capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == 0, done.stdout + done.stderr
