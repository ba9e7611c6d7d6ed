"""Requests with priorities, in scripted simulations."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from limits import PROGRAM_S

SCRIPTS = {
    "priorities": (
        "overtakes", "overtakes_staged", "shares_steps", "torn_priority", "no_effect",
        "wrong_before_an_equal",
    ),
    "places": (
        "takes_one_place", "takes_the_least_urgent", "waits_without_a_cache", "gives_pages", "of_one_client",
        "none_for_the_less_urgent", "one_for_one", "no_place_without_pages",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def programs(build_program: Callable[..., Path]) -> dict[str, Path]:
    return {name: build_program(name, [f"tests/kernels/simulator/{name}.cpp"], "-O1") for name in SCRIPTS}


@pytest.mark.parametrize(("name", "script"), [(name, script) for name in SCRIPTS for script in SCRIPTS[name]])
def test_the_more_urgent_comes_first(programs: dict[str, Path], name: str, script: str) -> None:
    """S2, S7, S15: in the line, where the batch or the KV cache is full, and where prompts share a step."""
    done = subprocess.run([programs[name], script], capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == 0, done.stdout + done.stderr
