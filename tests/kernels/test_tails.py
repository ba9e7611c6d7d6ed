"""First tokens and gaps between tokens, in virtual time, by the policy's own source (S15)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from limits import PROGRAM_S

Tails = Callable[..., dict[str, Any]]
PROMPT = 65_536
# Sequences whose answers do not end meanwhile.
DECODING = {"sigma": 0, "prompt": 1000, "output": 9000, "longest": 9500, "rate": 0, "last": PROMPT}
# How many times its time alone a prompt of 65,536 tokens may take, by default and with a target. The last
# machine has the costs that were measured of an H200: a step with a part of it takes 2 ms more.
MACHINES: dict[str, tuple[dict[str, float], float, float]] = {
    "8B in fp8": ({}, 1.6, 4.5),
    "8B in bf16": ({"token": 21e3, "weights": 4.2e6, "key": 32}, 1.6, 4.5),
    "8B in bf16, measured": (
        {"token": 22e3, "weights": 3.65e6, "key": 31, "seen": 1.07, "mixed": 1e6, "mixed_share": 128},
        1.9,
        6.5,
    ),
}


@pytest.fixture(scope="module")
def tails(build_program: Callable[..., Path]) -> Tails:
    """tails(name=value, ...): what simulator/tails.cpp prints."""
    program = build_program("tails", ["tests/kernels/simulator/tails.cpp"], "-O2")

    def run(**values: float) -> dict[str, Any]:
        command = [str(program), *(f"{name}={value:g}" for name, value in values.items())]
        output = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_S, check=True).stdout
        found = json.loads(output)
        assert isinstance(found, dict)
        return found

    return run


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("ended", [0, 2 * PROMPT])
def test_a_very_long_prompt_leaves_the_others_two_fifths_of_their_rate(
    tails: Tails, machine: str, ended: int
) -> None:
    """Also where requests before had long prompts and short answers. And it is in soon, as it comes in by
    large parts; but none of the others waits for long.
    """
    values, times, _ = MACHINES[machine]
    alone = tails(**DECODING, **values, requests=1)
    beside = tails(**DECODING, **values, requests=9, ended=ended)
    assert beside["rate"] >= 0.4 * beside["rate_before"]
    assert beside["ttft_ms"] <= times * alone["ttft_ms"]
    assert beside["longest_gap_ms"] <= 5.5e3 / beside["rate_before"]


@pytest.mark.parametrize("machine", MACHINES)
def test_a_target_keeps_the_others_at_four_fifths(tails: Tails, machine: str) -> None:
    """A target that no step with a part of the prompt can hold is held by all steps on average."""
    values, _, times = MACHINES[machine]
    alone = tails(**DECODING, **values, requests=1)
    before = tails(**DECODING, **values, requests=3)["rate_before"]
    beside = tails(**DECODING, **values, requests=3, target=1.28e3 / before)
    assert beside["rate"] >= 0.8 * (beside["rate_before"] + beside["rate_behind"]) / 2
    assert beside["ttft_ms"] <= times * alone["ttft_ms"]


def test_a_hopeless_target_stops_no_very_long_prompt(tails: Tails) -> None:
    """One that decode steps themselves do not hold: they go on at some eight ninths of their rate."""
    alone, beside = tails(**DECODING, requests=1), tails(**DECODING, requests=3, target=0.5)
    assert 0.85 * beside["rate_before"] <= beside["rate"] <= 0.95 * beside["rate_before"]
    assert beside["ttft_ms"] <= 10 * alone["ttft_ms"]


def test_a_target_bounds_gaps(tails: Tails) -> None:
    """Of requests that arrive at random, at two thirds of what the machine can serve; prompts wait longer."""
    free, bounded = tails(requests=200), tails(requests=200, target=5)
    assert bounded["itl_ms"]["p99"] <= 5.5 < 7 < free["itl_ms"]["p99"]
    assert bounded["ttft_ms"]["p99"] <= 2 * free["ttft_ms"]["p99"]


def test_steps_that_wait_for_company_are_fewer(tails: Tails) -> None:
    """S25: far from saturation. Tokens come as far apart as asked for, and first tokens no later."""
    load = {"requests": 200, "rate": 2, "sigma": 0, "prompt": 200}
    free, paced = tails(**load), tails(**load, min=10)
    assert paced["steps_per_token"] <= 0.5 * free["steps_per_token"]
    assert free["itl_ms"]["p50"] <= 3.5
    assert 9.9 <= paced["itl_ms"]["p50"] <= 10.1
    assert paced["itl_ms"]["p99"] <= 10.2
    assert paced["ttft_ms"]["p99"] <= 1.1 * free["ttft_ms"]["p99"]


def test_steps_that_take_longer_wait_for_nobody(tails: Tails) -> None:
    """S25: in the same time as without, to the nanosecond."""
    assert tails(requests=100, min=2) == tails(requests=100)


def test_a_target_that_does_not_bind_costs_prompts_nothing(tails: Tails) -> None:
    """But for the first step with a part of a prompt, before which nothing is known of such steps."""
    values = {**DECODING, "requests": 9, "last": 2000}
    assert tails(**values, target=30)["ttft_ms"] <= 1.1 * tails(**values)["ttft_ms"]


@pytest.mark.parametrize("others", [33, 63, 100])
@pytest.mark.parametrize("target", [0.5, 4])
def test_prompts_come_in_whatever_the_target(tails: Tails, others: int, target: float) -> None:
    """A decode step alone takes longer than some of these; a step has the work of 64 prompt tokens then."""
    found = tails(**{**DECODING, "last": 1000}, requests=others + 1, target=target)
    assert found["ttft_ms"] <= 250


def test_a_target_holds_before_a_decode_step_has_run(tails: Tails) -> None:
    """A server that starts under a backlog of prompts, all of whose steps are full."""
    load = {"requests": 60, "rate": 0, "sigma": 0, "prompt": 4000, "output": 100, "seen": 1e-5}
    assert tails(**load, target=5)["itl_ms"]["p99"] <= 6
