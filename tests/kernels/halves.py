"""Arrays of bfloat16, as their bits, and how close to the CPU reference their kernels come."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from reference_ops import Floats

Halves = NDArray[np.uint16]
NAN = 0x7FC0
TOLERANCE = 1e-2  # bfloat16 has 8 bits; relative to the largest value


def random(*shape: int, seed: int = 0, scale: float = 1) -> Halves:
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    values *= scale
    return values.view(np.uint16)[..., 1::2].copy()


def floats(halves: Halves) -> Floats:
    bits = halves.astype(np.uint32)
    bits <<= 16
    return bits.view(np.float32)


def assert_close(got: Floats, expected: Floats, tolerance: float = TOLERANCE) -> None:
    assert np.isfinite(got).all()
    assert np.abs(got - expected).max() <= tolerance * max(np.abs(expected).max(), 1e-9)
