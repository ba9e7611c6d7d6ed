"""First tokens and gaps between tokens, in virtual time, by the policy's own source (S15)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Tails = Callable[..., dict[str, Any]]
LIMIT_S = 120
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
        output = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout
        found = json.loads(output)
        assert isinstance(found, dict)
        return found

    return run


@pytest.mark.parametrize("machine", MACHINES)
def test_a_very_long_prompt_leaves_the_others_two_fifths_of_their_rate(tails: Tails, machine: str) -> None:
    """And is in within 1.6 times its time alone."""
    alone = tails(**DECODING, **MACHINES[machine], requests=1)
    beside = tails(**DECODING, **MACHINES[machine], requests=9)
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


def test_a_target_bounds_gaps_and_nobody_starves(tails: Tails) -> None:
    """Of requests that arrive at random, at two thirds of what the machine can serve."""
    free, bounded = tails(requests=200), tails(requests=200, target=5)
    assert bounded["itl_ms"]["p99"] <= 5.5 < 7 < free["itl_ms"]["p99"]
    assert bounded["ttft_ms"]["n"] == free["ttft_ms"]["n"] == 200


def test_a_target_that_nothing_meets_still_lets_prompts_in(tails: Tails) -> None:
    """A decode step alone takes longer."""
    found = tails(requests=40, rate=4, target=0.5)
    assert found["ttft_ms"]["n"] == 40
    assert found["ttft_ms"]["p50"] < 200
