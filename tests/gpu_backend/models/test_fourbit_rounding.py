"""Rounding to four bits while a model is loaded."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_backend.models.fourbit import quantize, units
from gpu_backend.models.quantization import ROUNDINGS, GroupForm


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
@pytest.mark.parametrize("size", [1e-30, 1e-6, 1e-4, 1.0, 2.5])
def test_groups_of_any_size_are_rounded_to_what_halves_hold(half: str, size: float) -> None:
    """A checkpoint may have groups of tiny numbers only; a scale that fits them alone would not be one."""
    form = ROUNDINGS["mxfp4"]
    assert isinstance(form, GroupForm)
    values = np.random.default_rng(0).normal(0, size, (4, 64)).astype(np.float32)
    rounded = quantize(values, form, half)
    units(rounded, form, half)  # raises for scales that it does not hold
    least = 2.0 ** (113 - 127) if half == "float16" else 0.0
    error = np.abs(rounded.values() - values)
    assert (error <= np.maximum(np.abs(values).max() / 4, least)).all()


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_weights_beyond_what_kernels_multiply_are_refused(half: str) -> None:
    """And not rounded to what is far from them."""
    form = ROUNDINGS["mxfp4"]
    assert isinstance(form, GroupForm)
    rounded = quantize(np.full((1, 32), 13, np.float32), form, half)
    with pytest.raises(ValueError, match="scales of 4 and more"):
        units(rounded, form, half)
