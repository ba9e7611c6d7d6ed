"""Prompts in scripted simulations: what begins alike is computed once, and none waits long behind others."""

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


@pytest.mark.parametrize("script", ["burst", "equal", "conversation"])
def test_nothing_is_computed_twice(play: Play, script: str) -> None:
    """S16: also when it arrives in the same step, and what was answered."""
    play(script)


@pytest.mark.parametrize("script", ["salts", "fault", "fault_shared"])
def test_nobody_finds_what_is_not_for_others(play: Play, script: str) -> None:
    """S17, R7."""
    play(script)


def test_the_oldest_and_deepest_pages_make_room(play: Play) -> None:
    """S16."""
    play("eviction")


def test_pages_are_found_as_quickly_after_many_were_evicted(play: Play) -> None:
    """S10, S16."""
    play("hot_prompt")


@pytest.mark.parametrize("tokens", [8_000, 32_000, 120_000])
def test_a_short_prompt_behind_long_ones_waits_for_four_steps(play: Play, tokens: int) -> None:
    """S15."""
    play("short_behind_long", tokens)


@pytest.mark.parametrize(
    "script", ["bounded_work", "many_at_once", "long_before_there_is_room", "only_the_oldest_holds_pages"]
)
def test_prompts_disturb_nobody(play: Play, script: str) -> None:
    """S15: a step's work is bounded, many prompts come in by small steps, pages are taken chunk by chunk.

    Only the oldest prompt holds pages while it waits for more."""
    play(script)


@pytest.mark.parametrize("requests", [2_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_nothing_is_lost_and_nothing_grows(build_program: Callable[..., Path], requests: int) -> None:
    """S1, S16: random requests over 1,000 beginnings, under eviction; every answer is right."""
    program = build_program("soak", ["tests/kernels/simulator/soak.cpp"], "-O2")
    done = subprocess.run([program, str(requests), "1"], capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == 0, done.stdout + done.stderr
