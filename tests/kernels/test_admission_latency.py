"""How long an arrival waits for its prefill while others decode, by the policy's own source."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Waited = Callable[..., np.ndarray]
DECODE_NS = 1_000_000  # of the world


@pytest.fixture(scope="module")
def waited(build_program: Callable[..., Path]) -> Waited:
    """waited(seed, rows, arrivals, spacing_ns, torn): decode steps from each's publication to its prefill.

    With `torn`, a request older than they waits for a payload that never comes.
    """
    library = ctypes.CDLL(
        str(build_program("latency.so", ["tests/kernels/simulator/latency.cpp"], "-O2", "-shared", "-fPIC"))
    )
    run = library.blink_latency_run
    run.restype, count, wide = ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64
    run.argtypes = [wide, count, count, wide, ctypes.c_bool, ctypes.POINTER(count)]

    def steps(seed: int, rows: int, arrivals: int, spacing_ns: int, torn: bool = False) -> np.ndarray:
        out = (count * arrivals)()
        assert run(seed, rows, arrivals, spacing_ns, torn, out) == arrivals
        return np.array(out)

    return steps


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("rows", [8, 16, 32])
def test_an_arrival_is_prefilled_within_two_decode_steps(waited: Waited, rows: int, torn: bool) -> None:
    """The step that runs when it is published, and at most one that was armed, or that follows a prefill."""
    steps = np.concatenate([waited(seed, rows, 64, 4 * DECODE_NS, torn) for seed in range(5)])
    assert steps.max() <= 2
    assert np.median(steps) <= 1
    assert steps.max() > 0  # they did meet running steps


def test_a_burst_shares_its_first_step(waited: Waited) -> None:
    """Nothing runs, requests arrive a microsecond apart: none waits for a step of those before it (S14)."""
    for seed in range(5):
        assert waited(seed, 0, 8, 1_000).tolist() == [0] * 8
