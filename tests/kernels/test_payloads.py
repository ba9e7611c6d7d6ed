"""The payloads of requests in scripted simulations: their places in the heaps, slices of long ones, and whole
ones of an earlier epoch."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from limits import PROGRAM_S

Play = Callable[..., None]


@pytest.fixture(scope="module")
def play(build_program: Callable[..., Path]) -> Play:
    """play(script, *argument): runs a script of simulator/payloads.cpp."""
    program = build_program("payloads", ["tests/kernels/simulator/payloads.cpp"], "-O1")

    def run(script: str, *argument: int) -> None:
        command = [program, script, *map(str, argument)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_S)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("case", range(8))
def test_a_request_outside_its_leases_heaps_is_refused(play: Play, case: int) -> None:
    """R5, R7: nothing of another lease is read or written for it."""
    play("out_of_range", case)


def test_an_answer_ends_where_its_range_does(play: Play) -> None:
    """R5."""
    play("range_ends_answer")


@pytest.mark.parametrize(
    "script",
    [
        "slices", "cancelled_between_slices", "lease_lost_between_slices", "relaunch_between_slices",
        "torn_between_slices", "paused_between_slices",
    ],
)  # fmt: skip
def test_a_long_payload_is_read_in_slices(play: Play, script: str) -> None:
    """S18: no turn of the loop reads more than it may, whatever comes between two slices."""
    play(script)


@pytest.mark.parametrize("slices", [0, 1])
def test_a_whole_payload_of_an_earlier_epoch_is_not_served_and_the_right_one_is(
    play: Play, slices: int
) -> None:
    """R4: also where the request word cannot tell the epochs apart, by their low 24 bits."""
    play("earlier_epoch", slices)


def test_a_request_whose_slot_keeps_a_payload_of_an_earlier_epoch_is_refused(play: Play) -> None:
    """R4, R7."""
    play("earlier_epoch_only")
