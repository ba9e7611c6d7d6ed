"""Pages of the prefix cache go to host memory and come back, in scripted simulations (S19)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from limits import PROGRAM_S

Play = Callable[[str], None]


@pytest.fixture(scope="module")
def play(build_program: Callable[..., Path]) -> Play:
    """play(script): runs a script of simulator/host_pages.cpp."""
    program = build_program("host_pages", ["tests/kernels/simulator/host_pages.cpp"], "-O1")

    def run(script: str) -> None:
        done = subprocess.run([program, script], capture_output=True, text=True, timeout=PROGRAM_S)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("script", ["come_back", "come_back_twice"])
def test_what_the_device_has_no_room_for_is_found_again(play: Play, script: str) -> None:
    play(script)


def test_the_oldest_pages_in_host_memory_make_room(play: Play) -> None:
    play("make_room")


def test_a_short_rest_of_a_prompt_is_computed(play: Play) -> None:
    play("compute_what_is_short")


def test_copies_delay_no_answer_by_more_than_a_step(play: Play) -> None:
    play("delay_no_answer")
