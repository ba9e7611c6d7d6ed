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
DECODING = {"sigma": 0, "prompt": 1000, "output": 4000, "longest": 4500, "rate": 0, "last": PROMPT}
MACHINES: dict[str, dict[str, float]] = {
    "8B in fp8": {},
    "8B in bf16": {"token": 21e3, "weights": 4.2e6, "key": 32},
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
    """And is in within 1.6 times its time alone, also where requests before had long prompts and short
    answers.
    """
    alone = tails(**DECODING, **MACHINES[machine], requests=1)
    beside = tails(**DECODING, **MACHINES[machine], requests=9, ended=ended)
    assert beside["rate"] >= 0.4 * beside["rate_before"]
    assert beside["ttft_ms"] <= 1.6 * alone["ttft_ms"]


@pytest.mark.parametrize("machine", MACHINES)
def test_a_target_keeps_the_others_at_four_fifths(tails: Tails, machine: str) -> None:
    """And the prompt is in within 4.5 times its time alone."""
    alone = tails(**DECODING, **MACHINES[machine], requests=1)
    before = tails(**DECODING, **MACHINES[machine], requests=9)["rate_before"]
    beside = tails(**DECODING, **MACHINES[machine], requests=9, target=1.22e3 / before)
    assert beside["rate"] >= 0.8 * before
    assert beside["ttft_ms"] <= 4.5 * alone["ttft_ms"]


def test_a_target_bounds_gaps(tails: Tails) -> None:
    """Of requests that arrive at random, at two thirds of what the machine can serve; prompts wait longer."""
    free, bounded = tails(requests=200), tails(requests=200, target=5)
    assert bounded["itl_ms"]["p99"] <= 5.5 < 7 < free["itl_ms"]["p99"]
    assert bounded["ttft_ms"]["p99"] <= 2 * free["ttft_ms"]["p99"]


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
