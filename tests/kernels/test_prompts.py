"""Prompts beside others, in scripted simulations: a step is bounded, and none waits long for longer ones."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from limits import PROGRAM_S

Play = Callable[..., None]


@pytest.fixture(scope="module")
def play(build_program: Callable[..., Path]) -> Play:
    """play(script, *argument): runs a script of simulator/prompts.cpp."""
    program = build_program("prompts", ["tests/kernels/simulator/prompts.cpp"], "-O1")

    def run(script: str, *argument: int) -> None:
        words = [program, script, *map(str, argument)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PROGRAM_S)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("tokens", [8_000, 32_000, 120_000])
def test_a_short_prompt_behind_long_ones_waits_for_four_steps(play: Play, tokens: int) -> None:
    """S15."""
    play("short_behind_long", tokens)


@pytest.mark.parametrize("microseconds", [0, 1500, 900])
def test_short_prompts_do_not_wait_for_a_very_long_one(play: Play, microseconds: int) -> None:
    """S15: without a target, with one that parts of it hold, and with one that even decode steps do not."""
    play("short_behind_very_long", microseconds)


@pytest.mark.parametrize(
    "script",
    [
        "bounded_work",
        "many_at_once",
        "waits_for_a_place",
        "long_before_there_is_room",
        "only_the_oldest_holds_pages",
    ],
)
def test_prompts_disturb_nobody(play: Play, script: str) -> None:
    """S15: a step's work is bounded, many prompts come in by small steps, pages are taken chunk by chunk.

    Only the oldest prompt holds pages while it waits for more."""
    play(script)
