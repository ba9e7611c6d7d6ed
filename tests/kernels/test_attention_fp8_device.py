"""Decode attention over a cache in fp8, on the emulator, against its CPU references."""

from __future__ import annotations

import pytest
from attention_step import FP8
from emulation import Emulate
from halves import random
from test_attention_device import ROWS, StreamStep


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"),
    [
        (6, 2, 16),
        (8, 1, 64),
        (2, 1, 80),
        (4, 2, 128),
        pytest.param(2, 2, 96, marks=pytest.mark.slow),
        pytest.param(2, 1, 192, marks=pytest.mark.slow),
        pytest.param(8, 1, 256, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(("biased", "window"), [(False, 0), (True, 40)])
def test_decode_attention_to_fp8(
    emulate: Emulate, heads: int, kv_heads: int, head_dim: int, biased: bool, window: int
) -> None:
    """Values that are too large for the scale are cut; what other rows have left is no number."""
    if biased and head_dim not in (16, 128, 256):
        pytest.skip("no such instance in the emulator")
    step = StreamStep(ROWS, heads, kv_heads, head_dim, padding=2, biased=biased, window=window, scales=FP8)
    norms = [random(head_dim, seed=s) for s in (5, 6)]
    step.check(step.run(emulate, (4, 64, 128, 64), 5, norms), norms)
