"""Speculation, in scripted simulations (S23): drafts change nothing of an answer but how soon it is there."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from limits import PROGRAM_S

Play = Callable[..., None]


def player(build_program: Callable[..., Path], name: str) -> Play:
    """play(script): runs a script of that program of the simulator."""
    program = build_program(name, [f"tests/kernels/simulator/{name}.cpp"], "-O1")

    def run(script: str) -> None:
        done = subprocess.run([program, script], capture_output=True, text=True, timeout=PROGRAM_S)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


@pytest.fixture(scope="module")
def play(build_program: Callable[..., Path]) -> Play:
    return player(build_program, "drafts")


@pytest.fixture(scope="module")
def look_up(build_program: Callable[..., Path]) -> Play:
    return player(build_program, "lookups")


@pytest.mark.parametrize("script", ["right", "right_by_suffix"])
def test_right_drafts_save_steps(play: Play, script: str) -> None:
    """S23: and each token is what it is without."""
    play(script)


@pytest.mark.parametrize("script", ["stop_id_within", "end_within"])
def test_an_answer_ends_within_its_drafts(play: Play, script: str) -> None:
    """S23: nothing behind the end is published, although it is right."""
    play(script)


def test_nobody_leaves_for_drafts(play: Play) -> None:
    """S23: where there are few pages."""
    play("short_of_pages")


@pytest.mark.parametrize(
    "script",
    ["conversation_of_tokens", "conversation_of_pairs", "conversation_of_pages", "conversation_by_suffix"],
)
def test_all_that_drafts_have_filled_is_found(play: Play, script: str) -> None:
    """S16: of pages of 1, 2 and 16 tokens, of which a step may fill several."""
    play(script)


def test_a_request_is_cancelled_while_its_drafts_are_checked(play: Play) -> None:
    """S5, S6, S23."""
    play("cancel")


def test_the_next_step_does_not_wait_for_what_can_be_done_behind_its_launch(play: Play) -> None:
    """S24: frontends are shown tokens then."""
    play("shown_late")


def test_a_place_that_others_wait_for_is_given_away_at_once(play: Play) -> None:
    """S24: what brings it back is not put off."""
    play("places_come_back")


def test_a_burst_shares_a_step_behind_the_end_of_the_last_answer(play: Play) -> None:
    """S14: drafts are no reason not to look at the ring once more."""
    play("burst_behind_the_end")


def test_drafts_share_the_rows_that_there_are(play: Play) -> None:
    """S23."""
    play("few_rows")


def test_where_more_decode_than_a_step_with_drafts_has_rows_there_are_none(play: Play) -> None:
    """S23."""
    play("fewer_rows_than_sequences")


@pytest.mark.parametrize("script", ["nothing_found", "nothing_right"])
def test_steps_are_launched_early_where_drafts_are_worth_nothing(play: Play, script: str) -> None:
    """S23: only now and then does a step wait for the tokens of the one before it."""
    play(script)


@pytest.mark.parametrize("script", ["random_histories", "any_index"])
def test_drafts_follow_an_earlier_place_that_matches(look_up: Play, script: str) -> None:
    """By suffix: what is drafted has stood there behind the same tokens, and is no longer than these allow,
    even if the index says anything at all."""
    look_up(script)


def test_places_that_match_as_long_vote(look_up: Play) -> None:
    """By suffix: what followed most often is drafted, and nothing that too few agree with."""
    look_up("most_decide")


@pytest.mark.parametrize("script", ["copied_with_a_change", "repeated"])
def test_a_copy_goes_on(look_up: Play, script: str) -> None:
    """By suffix: behind a word that was changed, and over the end of what is known."""
    look_up(script)
