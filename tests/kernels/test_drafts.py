"""Speculation, in scripted simulations (S23): drafts change nothing of an answer but how soon it is there."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from limits import PROGRAM_S

Play = Callable[..., None]


@pytest.fixture(scope="module")
def play(build_program: Callable[..., Path]) -> Play:
    """play(script): runs a script of simulator/drafts.cpp."""
    program = build_program("drafts", ["tests/kernels/simulator/drafts.cpp"], "-O1")

    def run(script: str) -> None:
        done = subprocess.run([program, script], capture_output=True, text=True, timeout=PROGRAM_S)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


def test_right_drafts_save_steps(play: Play) -> None:
    """S23: and each token is what it is without."""
    play("right")


@pytest.mark.parametrize("script", ["stop_id_within", "end_within"])
def test_an_answer_ends_within_its_drafts(play: Play, script: str) -> None:
    """S23: nothing behind the end is published, although it is right."""
    play(script)


def test_nobody_leaves_for_drafts(play: Play) -> None:
    """S23: where there are few pages."""
    play("short_of_pages")


@pytest.mark.parametrize(
    "script", ["conversation_of_tokens", "conversation_of_pairs", "conversation_of_pages"]
)
def test_all_that_drafts_have_filled_is_found(play: Play, script: str) -> None:
    """S16: of pages of 1, 2 and 16 tokens, of which a step may fill several."""
    play(script)


def test_a_request_is_cancelled_while_its_drafts_are_checked(play: Play) -> None:
    """S5, S6, S23."""
    play("cancel")


def test_drafts_share_the_rows_that_there_are(play: Play) -> None:
    """S23."""
    play("few_rows")


@pytest.mark.parametrize("script", ["nothing_found", "nothing_right"])
def test_steps_are_launched_early_where_drafts_are_worth_nothing(play: Play, script: str) -> None:
    """S23: only now and then does a step wait for the tokens of the one before it."""
    play(script)
