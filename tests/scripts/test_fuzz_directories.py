"""Hostile model directories: what was found before, and some new ones (scripts/fuzz/model_directories.py)."""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from fuzz.directory_case import write
from fuzz.directory_cases import MOST_CHARACTERS, draw_case, value
from fuzz.model_directories import CORPUS, SIDES, Outcome, apart, import_both, judged
from limits import PROGRAM_S

from nic_frontend.templates import renderer

CASES = json.loads(CORPUS.read_text())
SERVED = ("a tokenizer that gives texts up", "chat templates that are no objects")  # without harm
HONEST = ("a tokenizer without a longest text", "large numbers that nobody uses")
PR_SET_PDEATHSIG = 1  # of linux/prctl.h
QUICK = (
    *HONEST,
    "a config.json without end",
    "a weight that is no number",
    "a token of four billion",
)


Judge = Callable[..., dict[str, Outcome]]


def begin() -> None:
    """In the process that judges, which does not outlive the worker, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    import_both()


def judged_within(start_s: float, case: Any, directory: Path) -> dict[str, Outcome]:
    renderer.START_S = start_s
    return judged(case, directory)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    """`judged` in a process of its own, which forks for each case: a worker that has run hundreds of tests
    takes longer to fork than a case does. `start_s` is how long templates may take to start."""

    def judge(case: Any, directory: Path, start_s: float = 5.0) -> dict[str, Outcome]:
        return process.submit(judged_within, start_s, case, directory).result(PROGRAM_S)

    with ProcessPoolExecutor(1, get_context("spawn"), begin) as process:
        yield judge


class Longest(random.Random):
    """A list of texts, and the longest of everything."""

    def randrange(self, *bounds: int) -> int:
        return 6 if bounds == (8,) else 3

    def choice(self, of: Any) -> Any:
        return max(of, key=lambda one: len(repr(one)))


def test_what_is_drawn_has_bounds() -> None:
    """10 GB of JSON, once in some hundred cases, ended other processes of the machine."""
    assert 1 << 20 < len(json.dumps(value(Longest()))) < 2 * MOST_CHARACTERS


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in CASES]
)
def test_what_was_found_is_refused_in_one_line_or_bounded(tmp_path: Path, judge: Judge, name: str) -> None:
    # What has to be served is given as long as by default: where it is refused, the machine was only busy.
    patience = {"start_s": renderer.START_S} if name in HONEST else {}
    outcomes = judge(CASES[name], tmp_path / "model", **patience)
    assert not [outcome for outcome in outcomes.values() if outcome.fault], outcomes
    kinds = {outcome.kind for outcome in outcomes.values()}
    assert kinds == {"served"} if name in HONEST else name in SERVED or "refused" in kinds, outcomes


@pytest.mark.parametrize("seed", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (100, 101))])
def test_directories_that_are_drawn_at_random(tmp_path: Path, judge: Judge, seed: int) -> None:
    outcomes = judge(draw_case(seed)[1], tmp_path / "model")
    assert not [outcome for outcome in outcomes.values() if outcome.fault], outcomes


@pytest.mark.slow
def test_the_demo_model_itself_is_served(tmp_path: Path) -> None:
    """Else everything would look refused."""
    for side in SIDES.values():
        outcome = apart(side, write({}, tmp_path / "model"))
        assert outcome.kind == "served", outcome


def test_faults_are_found(tmp_path: Path) -> None:
    def told_in_two_lines(directory: Path) -> None:
        raise ValueError("one\ntwo")

    def bug(directory: Path) -> None:
        raise KeyError("x")

    def crash(directory: Path) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    for side, kind in (
        (told_in_two_lines, "more than a line"),
        (bug, "KeyError"),
        (crash, "killed by SIGSEGV"),
    ):
        outcome = apart(side, tmp_path)
        assert outcome.fault
        assert kind in outcome.kind
