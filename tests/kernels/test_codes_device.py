"""Codes of four bits become halves on the emulator: to the last bit what numpy makes of them."""

from __future__ import annotations

import numpy as np
import pytest
from emulation import Emulate
from halves import NAN, floats, random
from weights import CODES, weights

from gpu_backend.models.quantization import Codes, GroupForm


@pytest.mark.parametrize("form", [*CODES, GroupForm(Codes.INT4, 32), GroupForm(Codes.INT4, 128)])
@pytest.mark.parametrize(("rows", "columns", "blocks"), [(1, 128, 1), (7, 384, 2), (65, 128, 3)])
def test_a_matrix_is_unpacked(
    emulate: Emulate, rows: int, columns: int, blocks: int, form: GroupForm
) -> None:
    """Every code beside every scale; what lies behind the matrix is not written."""
    w = weights(random(rows, columns, scale=0.1), form)
    out = np.full((rows + 1, columns), NAN, np.uint16)
    emulate("unpack", *w.pointers, out, rows, columns, w.form, blocks)
    np.testing.assert_array_equal(floats(out)[:rows], w.values)
    assert (out[rows] == NAN).all()
