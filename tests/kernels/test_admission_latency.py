"""How long an arrival waits for its prefill while others decode, by the policy's own source."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

ARRIVALS = 64


@pytest.fixture(scope="module")
def waited(build_program: Callable[..., Path]) -> Callable[[int, int, bool], np.ndarray]:
    """waited(seed, rows, torn): for each of ARRIVALS, the decode steps between publication and first prefill.

    With `torn`, a request older than they waits for a payload that never comes.
    """
    library = ctypes.CDLL(
        str(build_program("latency.so", ["tests/kernels/world/latency.cpp"], "-O2", "-shared", "-fPIC"))
    )
    run = library.blink_latency_run
    run.argtypes = [
        ctypes.c_uint64,
        ctypes.c_uint32,
        ctypes.c_uint32,
        ctypes.c_bool,
        ctypes.POINTER(ctypes.c_uint32),
    ]
    run.restype = ctypes.c_uint32

    def steps(seed: int, rows: int, torn: bool) -> np.ndarray:
        out = (ctypes.c_uint32 * ARRIVALS)()
        assert run(seed, rows, ARRIVALS, torn, out) == ARRIVALS
        return np.array(out)

    return steps


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("rows", [8, 16, 32])
def test_an_arrival_is_prefilled_within_two_decode_steps(
    waited: Callable[[int, int, bool], np.ndarray], rows: int, torn: bool
) -> None:
    """The step that runs when it is published, and at most one that was armed, or that follows a prefill."""
    steps = np.concatenate([waited(seed, rows, torn) for seed in range(5)])
    assert steps.max() <= 2
    assert np.median(steps) <= 1
    assert steps.max() > 0  # they did meet running steps
