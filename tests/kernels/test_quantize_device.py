"""Quantisation of activations to fp8 on the emulator, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from emulation import EPS, Emulate
from halves import NAN, floats, random
from numpy.typing import NDArray
from quantized import activations
from reference_ops import call

from gpu_backend.kernel_abi.quantize import QUANTIZE_HELD
from gpu_backend.models import fp8
from gpu_backend.models.quantization import SCALE_BLOCK, ScaleForm
from gpu_backend.ops.quantize import groups_held, row_threads

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
FORMS = list(ScaleForm)


def emulated(emulate: Emulate, x: NDArray[np.uint16], form: ScaleForm, stride: int) -> tuple[Bytes, Floats]:
    rows, k = x.shape
    held = groups_held(k)
    out = np.full((rows + 1, k), 0x55, np.uint8)
    blocks = 1 if form is ScaleForm.ROW else -(-k // SCALE_BLOCK)
    scales = np.full((blocks, stride), 7, np.float32)
    emulate("quantize", x, out, scales, k, stride, rows, FORMS.index(form), held, row_threads(k, held)[0])
    assert (out[rows] == 0x55).all()
    assert (scales[:, rows:] == 7).all()
    return out[:rows], scales[:, :rows]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("rows", "k"), [(1, 16), (5, 208), (3, 2064), (4, 4096), (2, 14352), (2, 28672)])
def test_elements_and_scales(emulate: Emulate, rows: int, k: int, form: ScaleForm) -> None:
    """A thread with one group of columns, with several, and with none; a row that more warps divide."""
    x = random(rows, k, seed=k)
    x[rows - 1, k // 2 :] = 0
    got, scales = emulated(emulate, x, form, rows + 3)
    expected = activations(floats(x), form)
    np.testing.assert_array_equal(scales, expected.scales[:, :rows])
    np.testing.assert_array_equal(got, expected.elements)


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_hold_no_numbers_hurt_no_other(emulate: Emulate, form: ScaleForm) -> None:
    """E3: padding rows hold anything. Of all-zero rows the scale is 1, and tiny elements need no infinite
    factor."""
    x = random(6, 272)
    x[1, 5], x[2, 7], x[3], x[4] = NAN, 0x7F80, 0, 1  # no number, infinity, zeros, the smallest number
    got, scales = emulated(emulate, x, form, 6)
    expected = activations(floats(x), form)
    np.testing.assert_array_equal(scales, expected.scales[:, :6])
    there = [0, 3, 4, 5]
    np.testing.assert_array_equal(got[there], expected.elements[there])
    assert (scales[:, 3] == 1).all()
    assert np.isnan(fp8.from_fp8(got[[1, 2]])).any(axis=1).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("hidden", "threads"), [(16, 32), (272, 32), (1600, 128)])
def test_a_norm_that_is_quantised(emulate: Emulate, hidden: int, threads: int, form: ScaleForm) -> None:
    """Sums in another order may move a value across the border between two elements: neighbours agree."""
    rows = 3
    residual, weight = floats(random(rows, hidden)), random(hidden, seed=2)
    expected = np.empty_like(residual)
    zero = np.zeros_like(residual)
    call("residual_rmsnorm", residual.copy(), zero, floats(weight), EPS, expected, hidden, rows)
    got, got_scales = places(expected, form)
    sizes = (hidden, rows + 1, rows, FORMS.index(form), threads)
    emulate("rmsnorm_quantize", residual, weight, EPS, got, got_scales, *sizes)
    assert_neighbours(got, got_scales, expected, form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("hidden", "threads"), [(16, 32), (272, 32), (1600, 128)])
def test_a_norm_of_a_sum_that_is_quantised(
    emulate: Emulate, hidden: int, threads: int, form: ScaleForm
) -> None:
    rows = 3
    residual, x = floats(random(rows, hidden)), random(rows, hidden, seed=1, scale=3)
    weight, following = random(hidden, seed=2), random(hidden, seed=3)
    total, expected = residual.copy(), np.empty_like(residual)
    call("add_rmsnorm", total, floats(x), floats(weight), floats(following), EPS, expected, hidden, rows)
    got, got_scales = places(expected, form)
    sizes = (hidden, rows + 1, rows, FORMS.index(form), threads)
    emulate("add_rmsnorm_quantize", residual, x, weight, following, EPS, got, got_scales, *sizes)
    np.testing.assert_allclose(residual, total, rtol=1e-5, atol=1e-5)
    assert_neighbours(got, got_scales, expected, form)


def places(values: Floats, form: ScaleForm) -> tuple[Bytes, Floats]:
    """For elements and scales, of which one row more."""
    rows, columns = values.shape
    blocks = 1 if form is ScaleForm.ROW else -(-columns // SCALE_BLOCK)
    return np.zeros((rows, columns), np.uint8), np.zeros((blocks, rows + 1), np.float32)


def assert_neighbours(got: Bytes, scales: Floats, values: Floats, form: ScaleForm) -> None:
    """Those of the values, but for a few elements that are the ones beside."""
    rows, expected = len(values), activations(values, form)
    np.testing.assert_allclose(scales[:, :rows], expected.scales[:, :rows], rtol=1e-5)
    assert (scales[:, rows] == 0).all()
    assert np.abs(got.astype(int) - expected.elements).max() <= 1
    assert (got != expected.elements).mean() < 0.01


def test_a_row_that_no_block_can_hold_is_refused() -> None:
    assert row_threads(65_536, QUANTIZE_HELD)[0] == 1024
    with pytest.raises(ValueError, match=r"a row of 65552 columns cannot be rounded .* it may have 65536"):
        row_threads(65_552, QUANTIZE_HELD)
