"""The scheduler on machines that break down or stand still, in scripted worlds."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from limits import PROGRAM_S

from ringbuffer.abi import Control

Play = Callable[..., None]


@pytest.fixture(scope="module")
def play(build_program: Callable[..., Path]) -> Play:
    """play(script, *argument): runs a script of simulator/breakdowns.cpp."""
    program = build_program("breakdowns", ["tests/kernels/simulator/breakdowns.cpp"], "-O1")

    def run(script: str, *argument: int) -> None:
        command = [program, script, *map(str, argument)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_S)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("control", [Control.RUN, Control.DRAIN])
@pytest.mark.parametrize("fault", ["launch", "step", "processor", "gate", "relaunch", "token"])
def test_a_fault_ends_the_scheduler_and_every_request(play: Play, fault: str, control: Control) -> None:
    """S10: FAILED is final, also while the backend drains."""
    play(f"{fault}_fault", control)


def test_a_scheduler_that_stood_still_blames_nobody(play: Play) -> None:
    """S10, R6."""
    play("everybody_stood_still")


@pytest.mark.parametrize("asked_ns", [0, 1, 10_000_000_000, pytest.param(2**64 - 1, marks=pytest.mark.slow)])
def test_a_lease_lasts_as_long_as_its_frontend_asked(play: Play, asked_ns: int) -> None:
    """R6: within bounds, whatever it asked for."""
    play("frontends_stand_still", asked_ns)


def test_a_stall_between_two_refused_launches_is_no_retry(play: Play) -> None:
    """S9: what is bounded is the time that the scheduler spends retrying."""
    play("stall_between_refusals")


def test_a_stall_between_two_executions_blames_nobody(play: Play) -> None:
    """S10, R6, R4: what is given time is also given it anew by an execution that comes late."""
    play("stall_between_executions")


def test_an_execution_whose_clock_is_behind_reclaims_no_lease(play: Play) -> None:
    """R6: each multiprocessor reads a clock of its own."""
    play("clock_behind_between_executions")


@pytest.mark.parametrize("back_ns", [20_000, 10_000_000, 10_000_000_000])
def test_a_clock_that_goes_back_harms_nobody(play: Play, back_ns: int) -> None:
    """R6, S10: neither a little, nor so far that waiting for it would look like death."""
    play("clock_goes_back", back_ns)


@pytest.mark.parametrize("predecessor_completes", [False, True])
def test_no_step_is_published_beside_which_another_ran(play: Play, predecessor_completes: bool) -> None:
    """E2: the armed step's gate gave up, and its completion may hide its predecessor's."""
    play("gate_gives_up_early", int(predecessor_completes))


@pytest.mark.parametrize("taken_ns", [70_000, 3_000_000, 2_000_000_000])
def test_the_longest_turn_is_told(play: Play, taken_ns: int) -> None:
    """S18: a loop that stood still took no turn."""
    play("turn_takes_long", taken_ns)
