"""Products of Llama-3-8B's sizes, against CuPy's in fp32: numpy would take minutes for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_tiled_gemm_gpu import TOLERANCE, Floats, Rig, multiply, rig

from gpu_backend.ops.operations import Epilogue

__all__ = ["rig"]  # the fixture
cupy: Any = pytest.importorskip("cupy", reason="needs CuPy: scripts/setup gpu-test")
ADD, SILU = Epilogue.ADD, Epilogue.GATED
SUMS = 2e-5  # of 14,336 products in fp32, whose order differs: 1.15e-5 was seen


def random(seed: int, *shape: int, scale: float = 1) -> Floats:
    """Values that both half types hold."""
    made = scale * cupy.random.default_rng(seed).standard_normal(shape, dtype=cupy.float32)
    made = (made.view(cupy.uint32) & 0xFFFF0000).view(cupy.float32)
    return np.asarray(cupy.asnumpy(cupy.where(cupy.abs(made) < 2.0**-14, cupy.float32(0), made)))


@pytest.mark.parametrize(
    ("rows", "n_in", "n_out", "output"),
    [(1024, 4096, 14336, SILU), (2048, 14336, 4096, ADD), (8192, 4096, 4096, ADD)],
)
def test_a_product(rig: Rig, rows: int, n_in: int, n_out: int, output: Epilogue) -> None:
    w = random(1, n_out * (2 if output is SILU else 1), n_in, scale=n_in**-0.5)
    x, start = random(2, rows, n_in), random(3, rows + 1, n_out)
    got = multiply(rig, x, w, start, output)
    expected = cupy.asarray(x) @ cupy.asarray(w).T
    if output is SILU:
        gate, up = expected[:, :n_out], expected[:, n_out:]
        expected = gate / (1 + cupy.exp(-gate)) * up
    else:
        expected += cupy.asarray(start[:-1])
    error = cupy.linalg.norm(cupy.asarray(got[:-1]) - expected) / cupy.linalg.norm(expected)
    assert float(error) <= (SUMS if output is ADD else TOLERANCE[rig.dtype])
    np.testing.assert_array_equal(got[-1], start[-1])
