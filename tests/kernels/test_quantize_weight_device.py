"""Rounding of weights to fp8 by blocks on the emulator, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from emulation import Emulate
from halves import floats, random
from quantized import weight

from gpu_backend.models.quantization import ScaleForm


@pytest.mark.parametrize(("rows", "columns"), [(1, 16), (128, 128), (129, 144), (300, 272)])
def test_elements_and_scales(emulate: Emulate, rows: int, columns: int) -> None:
    """Blocks at the edges have fewer rows and columns; the scale of a block of zeros is 1."""
    w = random(rows, columns, seed=rows)
    w[128:256, 128:256] = 0
    w[0, 0] = 0x4120  # 10, which is the first block's largest
    shape = ScaleForm.BLOCK.shape(rows, columns)
    out, scales = np.full((rows + 1, columns), 0x55, np.uint8), np.full(shape, 7, np.float32)
    emulate("quantize_weight", w, out, scales, rows, columns)
    expected = weight(floats(w), ScaleForm.BLOCK)
    np.testing.assert_array_equal(scales, expected.scales)
    np.testing.assert_array_equal(out[:rows], expected.elements)
    assert scales[0, 0] == np.float32(10) / np.float32(448)
    assert (out[rows] == 0x55).all()
