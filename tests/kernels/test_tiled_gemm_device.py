"""The tiled GEMM on the emulator: two blocks bring each other half of x, results leave by bulk copies."""

from __future__ import annotations

import numpy as np
import pytest
from emulation import Emulate, lagging
from halves import NAN, assert_close, floats, random
from numpy.typing import NDArray
from products import OUTPUTS
from reference_ops import SILU, call
from test_skinny_gemm_device import box_map

from gpu_backend.arithmetic import ceil_div
from gpu_backend.ops.skinny_cut import Boxes, gate_up_boxes, matrix_boxes
from gpu_backend.ops.tiled_cut import PAIR, TILED_BOX, TILED_ROWS, TiledParams
from gpu_backend.ops.tiled_gemm import BOX_OUTPUTS

Floats = NDArray[np.float32]


def multiply(
    emulate: Emulate, x: NDArray[np.uint16], n_out: int, output: str, columns: int, band: int, pairs: int,
    activation: int = SILU,
) -> tuple[Floats, Floats]:  # fmt: skip
    """[m + 1][n_out]: what the kernel makes of random numbers, and their definition."""
    m, n_in = x.shape
    silu = output == "silu"
    rows = 2 * n_out if silu else n_out
    w = random(rows, n_in, seed=1, scale=0.1)
    product = np.empty((m, rows), np.float32)
    call("linear", floats(x), floats(w), product, m, n_in, rows)
    start = np.random.default_rng(2).standard_normal((m + 1, n_out)).astype(np.float32)
    y: NDArray[np.float32] | NDArray[np.uint16] = start.copy()
    expected = start.copy()
    if silu:
        y = np.full((m + 1, n_out), NAN, np.uint16)
        call("gated", product, active := np.empty((m, n_out), np.float32), n_out, m, activation)
        expected[:m], expected[m] = active, np.nan
    else:
        expected[:m] += product
    cut = TiledParams(m, n_in, columns, ceil_div(rows, PAIR * TILED_ROWS), ceil_div(m, columns), band)
    w_boxes = (gate_up_boxes if silu else matrix_boxes)(n_in, n_out, TILED_ROWS)
    x_boxes = matrix_boxes(n_in, m, columns // PAIR)
    y_boxes = Boxes((1, 1, m, n_out), (m * n_out, m * n_out, n_out), (1, 1, TILED_BOX, BOX_OUTPUTS))
    maps = box_map(w, w_boxes), box_map(x, x_boxes), box_map(y, y_boxes)
    emulate("tiled_gemm", *maps, np.frombuffer(cut.pack(), np.uint8), OUTPUTS.index(output), pairs)
    return floats(y) if silu else y, expected  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("output", ["add", "silu"])
@pytest.mark.parametrize(
    ("m", "n_in", "n_out", "columns", "band", "pairs"),
    [
        (1, 64, 8, 128, 1, 1),
        (100, 200, 72, 128, 1, 1),  # a panel that ends inside, and a tile
        (300, 136, 280, 128, 2, 1),  # two bands, the last not full, and more tiles than pairs
        (300, 72, 520, 144, 3, 2),
        (250, 328, 40, 256, 1, 1),  # fewer stages in the ring than a tile has
        (208, 64, 304, 208, 1, 2),
    ],
)
def test_a_product(
    emulate: Emulate, m: int, n_in: int, n_out: int, columns: int, band: int, pairs: int, output: str
) -> None:
    """What lies behind the last row is not written."""
    got, expected = multiply(emulate, random(m, n_in), n_out, output, columns, band, pairs)
    assert_close(got[:m], expected[:m])
    np.testing.assert_array_equal(got[m], expected[m])


@pytest.mark.slow
@pytest.mark.parametrize("block", [0, 1])
def test_a_block_waits_for_the_other_of_its_pair(emulate: Emulate, block: int) -> None:
    """E21: neither overwrites what the other still reads, nor ends before that one's copies have come."""
    with lagging(emulate, block):
        got, expected = multiply(emulate, random(150, 648), 296, "add", 128, 1, 1)
    assert_close(got, expected)


@pytest.mark.parametrize("output", ["add", "silu"])
def test_a_row_is_its_own(emulate: Emulate, output: str) -> None:
    """E20, to the last bit: whatever the rows beside it hold, and however the product is cut up."""
    x = random(150, 136)
    before, _ = multiply(emulate, x, 96, output, 160, 1, 1)
    x[1::2] = NAN
    after, _ = multiply(emulate, x, 96, output, 128, 1, 2)
    np.testing.assert_array_equal(after[:150:2], before[:150:2])
