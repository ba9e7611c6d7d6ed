"""The tiled GEMM of fp8 with fp8 on the emulator, against numpy's product of the quantised values."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from emulation import Emulate, lagging
from halves import NAN, assert_close, floats, random
from numpy.typing import NDArray
from products import OUTPUTS
from quantized import activations, weight
from reference_ops import SILU, call
from test_quantize_device import FORMS
from test_skinny_gemm_device import box_map

from gpu_backend.arithmetic import ceil_div
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.ops.skinny_cut import Boxes, gate_up_boxes, matrix_boxes
from gpu_backend.ops.tiled_cut import PAIR, TILED_BOX, TILED_ROWS, TiledParams
from gpu_backend.ops.tiled_fp8 import TILED_FP8_PARAMS
from gpu_backend.ops.tiled_fp8_cut import TiledFp8Cut

Floats = NDArray[np.float32]
ROW, BLOCK = FORMS


def words(elements: NDArray[np.uint8]) -> NDArray[np.uint16]:
    return elements.view(np.uint16)


def multiply(
    emulate: Emulate, x: NDArray[np.uint16], n_out: int, output: str, form: ScaleForm, columns: int,
    band: int, pairs: int, splits: int = 1,
) -> tuple[Floats, Floats]:  # fmt: skip
    """[m + 1][n_out]: what the kernel makes of random numbers, and their definition."""
    m, k = x.shape
    silu = output == "silu"
    rows = 2 * n_out if silu else n_out
    w = weight(floats(random(rows, k, seed=1, scale=0.1)), form)
    quantised = activations(floats(x), form)
    product = quantised.values @ w.values.T
    start = np.random.default_rng(2).standard_normal((m + 1, n_out)).astype(np.float32)
    y: NDArray[np.float32] | NDArray[np.uint16] = np.full((m + 1, n_out), NAN, np.uint16)
    expected = np.full((m + 1, n_out), np.nan, np.float32)
    if silu:
        call("gated", product, active := np.empty((m, n_out), np.float32), n_out, m, SILU)
        expected[:m] = active
    elif output == "add":
        y, expected = start.copy(), start.copy()
        expected[:m] += product
    else:
        expected[:m] = product
    params = TiledParams(m, k // 2, columns, ceil_div(rows, PAIR * TILED_ROWS), ceil_div(m, columns), band)
    cut = TiledFp8Cut(params, splits)
    parts = np.full((splits * cut.part_rows, n_out), np.nan, np.float32)
    to = y if splits == 1 else parts
    w_boxes = (gate_up_boxes if silu else matrix_boxes)(k // 2, n_out, TILED_ROWS)
    x_boxes = matrix_boxes(k // 2, m, columns // PAIR)
    y_rows = m if splits == 1 else len(parts)
    y_box = (1, 1, TILED_BOX, 64 if output == "half" and splits == 1 else 32)
    y_boxes = Boxes((1, 1, y_rows, n_out), (y_rows * n_out, y_rows * n_out, n_out), y_box)
    y_map = box_map(to, y_boxes)  # type: ignore[arg-type]
    y_map[12] = to.dtype == np.float32
    maps = box_map(words(w.elements), w_boxes), box_map(words(quantised.elements), x_boxes), y_map
    stride = quantised.scales.shape[1]
    scales = (quantised.scales.ctypes.data, w.scales.ctypes.data, stride, n_out)
    fp8 = struct.pack(TILED_FP8_PARAMS, *scales, splits, cut.share, cut.part_rows)
    by_value = np.frombuffer(params.pack(), np.uint8), np.frombuffer(fp8, np.uint8)
    of_product = "float" if splits > 1 else output
    emulate("tiled_fp8_gemm", *maps, *by_value, OUTPUTS.index(of_product), FORMS.index(form), pairs)
    if splits > 1:
        emulate("split_sums", parts, y, splits, cut.part_rows, n_out, m, OUTPUTS.index(output))
    return floats(y) if output != "add" else y, expected  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("output", ["half", "add", "silu"])
@pytest.mark.parametrize(
    ("m", "k", "n_out", "columns", "band", "pairs"),
    [
        (1, 128, 128, 64, 1, 1),
        (101, 400, 256, 128, 1, 1),  # a stage that ends inside, and a tile
        (300, 272, 384, 128, 2, 1),  # two bands, the last not full, and more tiles than pairs
        (250, 1296, 128, 176, 1, 1),  # more stages than an interval, and than the pipeline has
        (170, 656, 128, 80, 1, 2),  # 40 columns a block
        (9, 4240, 128, 64, 1, 1),  # more stages than a warp loads scales of weights for at once
    ],
)
def test_a_product(
    emulate: Emulate, m: int, k: int, n_out: int, columns: int, band: int, pairs: int, output: str,
    form: ScaleForm,
) -> None:  # fmt: skip
    """What lies behind the last row is not written."""
    got, expected = multiply(emulate, random(m, k), n_out, output, form, columns, band, pairs)
    assert_close(got[:m], expected[:m], 1e-5 if output == "add" else 1e-2)
    np.testing.assert_array_equal(got[m], expected[m])


@pytest.mark.parametrize("output", ["half", "add", "silu"])
def test_rows_of_any_number_have_scales_by_row(emulate: Emulate, output: str) -> None:
    got, expected = multiply(emulate, random(70, 144), 72, output, ROW, 96, 1, 1)
    assert_close(got[:70], expected[:70])


@pytest.mark.parametrize("output", ["half", "add"])
def test_the_last_block_of_rows_may_be_short(emulate: Emulate, output: str) -> None:
    got, expected = multiply(emulate, random(70, 144), 328, output, BLOCK, 128, 1, 1)
    assert_close(got[:70], expected[:70])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("output", ["half", "add"])
@pytest.mark.parametrize(
    ("m", "k", "n_out", "splits", "pairs"),
    [(70, 656, 328, 2, 1), (200, 1296, 128, 3, 2), (129, 2064, 264, 8, 3)],  # the last share is shorter
)
def test_several_share_a_tiles_sums(
    emulate: Emulate, m: int, k: int, n_out: int, splits: int, pairs: int, output: str, form: ScaleForm
) -> None:
    got, expected = multiply(emulate, random(m, k), n_out, output, form, 112, 1, pairs, splits)
    assert_close(got[:m], expected[:m], 1e-5 if output == "add" else 1e-2)
    np.testing.assert_array_equal(got[m], expected[m])


@pytest.mark.slow
@pytest.mark.parametrize("block", [0, 1])
@pytest.mark.parametrize("form", FORMS)
def test_a_block_waits_for_the_other_of_its_pair(emulate: Emulate, form: ScaleForm, block: int) -> None:
    """E21: neither overwrites what the other still reads, nor ends before that one's copies have come."""
    with lagging(emulate, block):
        got, expected = multiply(emulate, random(150, 1296), 296, "add", form, 128, 1, 1)
    assert_close(got, expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("output", ["half", "add", "silu"])
def test_a_row_is_its_own(emulate: Emulate, output: str, form: ScaleForm) -> None:
    """E20, to the last bit: whatever the rows beside it hold, and however the product is cut up."""
    x = random(150, 272)
    before, _ = multiply(emulate, x, 128, output, form, 80, 1, 1)
    x[1::2] = NAN
    after, _ = multiply(emulate, x, 128, output, form, 128, 1, 2)
    np.testing.assert_array_equal(after[:150:2], before[:150:2])


@pytest.mark.parametrize("form", FORMS)
def test_a_row_is_its_own_in_tiles_with_one_sum_and_with_two(emulate: Emulate, form: ScaleForm) -> None:
    """E20 over many intervals of promotion, and more stages than a warp loads scales for at once."""
    x = random(100, 4240)
    two, expected = multiply(emulate, x, 128, "add", form, 128, 1, 1)
    one, _ = multiply(emulate, x, 128, "add", form, 176, 1, 1)
    assert_close(two, expected)
    np.testing.assert_array_equal(one, two)
