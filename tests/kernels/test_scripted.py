"""The scheduler beside frontends that break the protocol, in scripted simulations."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from limits import PROGRAM_S

Play = Callable[..., None]


@pytest.fixture(scope="module")
def play(build_program: Callable[..., Path]) -> Play:
    """play(script, *argument): runs a script of simulator/scripted.cpp."""
    program = build_program("scripted", ["tests/kernels/simulator/scripted.cpp"], "-O1")

    def run(script: str, *argument: int) -> None:
        command = [program, script, *map(str, argument)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_S)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


def test_a_command_that_there_is_not_changes_nothing(play: Play) -> None:
    """R3."""
    play("unknown_command")


@pytest.mark.parametrize("script", ["longer_prompt", "other_prompt", "foreign_token", "foreign_record"])
def test_a_paused_request_resumes_from_nothing_but_what_was_admitted(play: Play, script: str) -> None:
    """S13, R7."""
    play(script)


def test_the_ring_is_looked_at_while_the_last_step_of_an_execution_runs(play: Play) -> None:
    """S10."""
    play("long_last_step")


def test_requests_that_are_refused_keep_nobody_waiting(play: Play) -> None:
    """S14."""
    play("refused_without_end")


@pytest.mark.parametrize("script", ["pages_of_the_youngest_return", "pages_of_another_return"])
def test_nobody_gives_way_where_pages_are_about_to_come_back(play: Play, script: str) -> None:
    """S7."""
    play(script)


@pytest.mark.parametrize("script", ["submitted_behind_a_scan", "ticket_of_another"])
def test_requests_of_a_frontend_are_in_the_order_of_submission(play: Play, script: str) -> None:
    """S2, whatever a scan sees first."""
    play(script)


def test_payloads_that_are_never_whole_are_read_seldom(play: Play) -> None:
    """R4."""
    play("torn_without_end")


@pytest.mark.parametrize(
    "script", ["prompts_in_balance", "prompts_in_share", "prompts_of_length", "prompts_given_up"]
)
def test_prompts_come_in_as_fast_as_answers_go_out(play: Play, script: str) -> None:
    """S15: by what requests have been, and in shares that are worth it."""
    play(script)
