"""fp8 in numpy: torch rounds the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpu_backend.models.fp8 import VALUES, dequantized, from_fp8, in_register_order, quantize, to_fp8
from gpu_backend.models.quantization import ScaleForm

EDGES = [
    0.0,
    -0.0,
    448.0,
    -448.0,
    2**-9,
    2**-10,
    3 * 2**-10,
    7.5 * 2**-9,
    2**-6,
    0.015,
    1e-9,
    17.0,
    19.0,
]


def test_the_value_of_every_element() -> None:
    expected = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()
    np.testing.assert_array_equal(VALUES, expected)
    finite = ~np.isnan(VALUES)
    np.testing.assert_array_equal(to_fp8(VALUES)[finite], np.arange(256)[finite])


def test_rounding_is_to_nearest_even() -> None:
    torch.manual_seed(0)
    values = torch.cat([torch.randn(20000) * 10 ** torch.empty(20000).uniform_(-4, 2.5), torch.tensor(EDGES)])
    for given in (values, values.bfloat16().float()):
        expected = given.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
        np.testing.assert_array_equal(to_fp8(given.numpy()), expected)


def test_what_is_too_large_saturates_and_no_number_stays_none() -> None:
    values = np.array([1e9, -1e9, np.inf, 464.0, np.nan], np.float32)
    np.testing.assert_array_equal(from_fp8(to_fp8(values)), [448, -448, 448, 448, np.nan])


@pytest.mark.parametrize("form", list(ScaleForm))
def test_a_matrix_comes_back_within_half_a_step(form: ScaleForm) -> None:
    """Of what its scale allows: 2^-4 of an element, and 2^-10 of the scale for the smallest."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(300, 160)).astype(np.float32) * np.exp(rng.normal(size=(300, 1))).astype(
        np.float32
    )
    values[7], values[128:256, :128] = 0, 0
    elements, scales = quantize(values, form)
    assert scales.shape == form.shape(300, 160)
    assert (scales > 0).all()
    error = np.abs(dequantized(elements, scales) - values)
    assert (error <= np.abs(values) * 2**-4 + scales.max() * 2**-10).all()
    assert np.abs(from_fp8(elements)).max() == 448
    assert not dequantized(elements, scales)[7].any()


def test_the_order_of_columns() -> None:
    """Of 16, as gpu_backend.ops.matrix.Matrix says it."""
    elements = np.arange(64, dtype=np.uint8).reshape(2, 32)
    ordered = in_register_order(elements)
    order = [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]
    np.testing.assert_array_equal(ordered, elements[:, order + [16 + i for i in order]])
