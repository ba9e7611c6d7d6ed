"""The skinny GEMM with narrow weights on the emulator, against the product of their values."""

from __future__ import annotations

import numpy as np
import pytest
from emulation import EPS, Emulate
from halves import NAN, TOLERANCE, Halves, assert_close, floats, random
from numpy.typing import NDArray
from products import OUTPUTS, Product
from reference_ops import SILU, call
from test_skinny_gemm_device import FusedNorm, box_map
from weights import CODES, Weights, weights

from gpu_backend.models.fourbit import unit_columns
from gpu_backend.models.quantization import Codes, Form, GroupForm, ScaleForm
from gpu_backend.ops.skinny_cut import SkinnyCut, gate_up_boxes, matrix_boxes

CODE_PANELS, FP8_PANELS = 4, 2  # of x for a panel of weights
FORMS: list[Form] = [ScaleForm.ROW, ScaleForm.BLOCK, *CODES]
GROUPS = (32, 128)  # of integers, beside those of CODES


def x_panels(form: Form) -> int:
    """Of x for a panel of weights."""
    return CODE_PANELS if isinstance(form, GroupForm) else FP8_PANELS


def cut_of(
    m: int, n_in: int, n_out: int, rows: int, tile_rows: int, panels: int, splits: int, form: Form
) -> SkinnyCut:
    """With more stages of w than of x."""
    of_x = x_panels(form)
    share = -(-n_in // (64 * of_x * panels * splits))
    return SkinnyCut(m, n_in, n_out, tile_rows, -(-rows // tile_rows), panels, 3, 2, share, splits, of_x)


def multiply(
    emulate: Emulate, cut: SkinnyCut, w: Weights, x: Halves, y: NDArray[np.generic], output: str, blocks: int,
    norm: FusedNorm,
) -> None:  # fmt: skip
    """x may have rows behind those that are multiplied."""
    words = w.stored.view(np.uint16)
    boxes = gate_up_boxes if output == "silu" else matrix_boxes
    rows = cut.n_out if output == "silu" else len(words)
    w_map = box_map(words, boxes(cut.n_in // cut.x_panels, rows, cut.tile_rows))
    x_map = box_map(x, matrix_boxes(cut.n_in, cut.m, cut.columns))
    structs = [np.frombuffer(by_value.pack(), np.uint8) for by_value in (cut, norm)]
    shape = (OUTPUTS.index(output), w.form, cut.columns, cut.tiles, cut.splits)
    launch = (cut.clusters(blocks), cut.threads, cut.shared_bytes)
    kernel = "skinny_code_gemm" if cut.x_panels == CODE_PANELS else "skinny_fp8_gemm"
    emulate(kernel, w_map, w.scales, x_map, y, *structs, *shape, *launch)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("form", CODES)
@pytest.mark.parametrize(
    ("m", "n_in", "n_out", "tile_rows", "panels", "splits", "blocks"),
    [
        (5, 256, 48, 48, 1, 1, 1),
        (1, 448, 64, 32, 2, 1, 2),  # a panel that ends inside, one that is empty, and more tiles than blocks
        (16, 832, 208, 112, 1, 1, 1),
        (7, 544, 328, 224, 1, 1, 1),  # a warpgroup has fewer fragments of its rows than there are warpgroups
        (20, 1312, 128, 64, 1, 2, 4),
        (32, 640, 264, 128, 2, 2, 6),
        (33, 320, 328, 96, 1, 1, 2),
    ],
)
def test_skinny_gemm_of_codes(
    emulate: Emulate, m: int, n_in: int, n_out: int, tile_rows: int, panels: int, splits: int, blocks: int,
    form: Form, output: str
) -> None:  # fmt: skip
    check_product(emulate, m, n_in, n_out, tile_rows, panels, splits, blocks, form, output)


@pytest.mark.parametrize("form", [*CODES, *(GroupForm(Codes.INT4, group) for group in GROUPS)])
@pytest.mark.parametrize(
    ("m", "n_in", "n_out", "tile_rows", "panels", "splits", "blocks"),
    [
        (3, 1056, 200, 40, 1, 1, 2),  # blocks of two and three tiles, rows of scales that are no whole words
        (16, 672, 1000, 120, 2, 1, 4),
        (30, 2080, 328, 104, 1, 2, 8),  # shares of k of which the second ends inside
        (12, 1024, 128, 56, 1, 4, 8),
        (34, 800, 200, 64, 1, 1, 2),
        (40, 288, 464, 232, 1, 1, 1),
    ],
)
def test_scales_of_codes_come_ahead(
    emulate: Emulate, m: int, n_in: int, n_out: int, tile_rows: int, panels: int, splits: int, blocks: int,
    form: Form
) -> None:  # fmt: skip
    """Across panels, stages and tiles."""
    check_product(emulate, m, n_in, n_out, tile_rows, panels, splits, blocks, form, "float")


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("form", list(ScaleForm))
@pytest.mark.parametrize(
    ("m", "n_in", "n_out", "tile_rows", "panels", "splits", "blocks"),
    [
        (5, 256, 48, 48, 1, 1, 1),
        (1, 400, 64, 32, 2, 1, 2),  # a panel that ends inside, one that is empty, and more tiles than blocks
        (16, 144, 208, 112, 1, 1, 1),  # tiles across blocks of scales
        (25, 1024, 160, 64, 1, 8, 8),
        (20, 272, 40, 16, 1, 8, 40),  # shares of k that are empty
        (32, 640, 264, 128, 2, 2, 6),
        (50, 512, 96, 64, 1, 2, 4),
        (33, 272, 328, 96, 1, 1, 2),
        (64, 640, 216, 112, 1, 4, 8),
    ],
)
def test_skinny_gemm(
    emulate: Emulate, m: int, n_in: int, n_out: int, tile_rows: int, panels: int, splits: int, blocks: int,
    form: Form, output: str
) -> None:  # fmt: skip
    check_product(emulate, m, n_in, n_out, tile_rows, panels, splits, blocks, form, output)


@pytest.mark.parametrize("tile_rows", [208, 176])
@pytest.mark.parametrize("output", ["half", "silu"])
@pytest.mark.parametrize("form", FORMS)
def test_high_tiles(emulate: Emulate, form: Form, output: str, tile_rows: int) -> None:
    """Of which a warpgroup has 64 rows twice, and the other as often, or once."""
    check_product(emulate, 64, 384, 480, tile_rows, 1, 1, 2, form, output)


def check_product(
    emulate: Emulate, m: int, n_in: int, n_out: int, tile_rows: int, panels: int,
    splits: int, blocks: int, form: Form, output: str,
) -> None:  # fmt: skip
    """What lies behind the last row of x and of y is neither read nor written."""
    silu = output == "silu"
    if silu and form is ScaleForm.BLOCK:
        n_out = 128 * -(-n_out // 128)  # gate and up have blocks of their own
    rows = 2 * n_out if silu else n_out
    if isinstance(form, GroupForm):
        unit = unit_columns(form)
        n_in = unit * -(-n_in // unit)
    x, w = random(m + 1, n_in), weights(random(rows, n_in, seed=1, scale=0.1), form)
    x[m] = NAN
    product = Product(x[:m], w.values, n_out, output)
    cut = cut_of(m, n_in, n_out, rows, tile_rows, panels, splits, form)
    multiply(emulate, cut, w, x, product.y, output, blocks, FusedNorm())
    product.check()


@pytest.mark.parametrize("output", ["half", "silu"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("m", "inner", "hidden", "n_out", "tile_rows", "splits"),
    [(9, 128, 48, 128, 16, 1), (30, 320, 96, 128, 96, 2), (60, 256, 208, 256, 72, 1)],
)
def test_norm_between_products(
    emulate: Emulate, m: int, inner: int, hidden: int, n_out: int, tile_rows: int, splits: int,
    form: Form, output: str,
) -> None:  # fmt: skip
    """E19: residual += x o^T, then norm(residual) w^T."""
    if isinstance(form, GroupForm):
        hidden = 64 * -(-hidden // 64)
    x, o = random(m, inner), weights(random(hidden, inner, seed=1, scale=0.1), form)
    weight, rows = random(hidden, seed=2), 2 * n_out if output == "silu" else n_out
    w = weights(random(rows, hidden, seed=3, scale=0.1), form)
    residual = np.random.default_rng(4).standard_normal((m, hidden)).astype(np.float32)
    delta, normed = np.empty((m, hidden), np.float32), np.empty((m, hidden), np.float32)
    call("linear", floats(x), o.values, delta, m, inner, hidden)
    total = residual.copy()
    call("residual_rmsnorm", total, delta, floats(weight), EPS, normed, hidden, m)
    expected = np.empty((m, rows), np.float32)
    call("linear", normed, w.values, expected, m, hidden, rows)
    if output == "silu":
        product, expected = expected, np.empty((m, n_out), np.float32)
        call("gated", product, expected, n_out, m, SILU)

    first = cut_of(m, inner, hidden, hidden, tile_rows, 1, splits, form)
    scaled = np.full((m, hidden), NAN, np.uint16)
    sums = np.full((first.n_sums, first.columns), np.nan, np.float32)
    leaves = FusedNorm(weight=weight.ctypes.data, scaled=scaled.ctypes.data, sums_out=sums.ctypes.data)
    multiply(emulate, first, o, x, residual, "add", 3, leaves)
    assert_close(residual, total)
    second = cut_of(m, hidden, n_out, rows, 32 if m <= 16 else 128, 1, 2 if 16 < m <= 32 else 1, form)
    takes = FusedNorm(sums_in=sums.ctypes.data, n_sums=first.n_sums, eps=EPS)
    y = np.full((m, n_out), NAN, np.uint16)
    multiply(emulate, second, w, scaled, y, output, second.n_tiles, takes)
    assert_close(floats(y), expected, 2 * TOLERANCE)


@pytest.mark.parametrize("form", FORMS)
def test_a_row_depends_on_no_other(emulate: Emulate, form: Form) -> None:
    """E18, to the last bit."""
    m, n_in, n_out = 30, 1024, 128
    x, w = random(m, n_in), weights(random(n_out, n_in, seed=1), form)
    cut = cut_of(m, n_in, n_out, n_out, 128, 1, 2, form)

    def product(rows: Halves) -> NDArray[np.float32]:
        y = np.zeros((m, n_out), np.float32)
        multiply(emulate, cut, w, rows, y, "float", 1, FusedNorm())
        return y

    first = product(x)
    x[1:] = random(m - 1, n_in, seed=5)
    np.testing.assert_array_equal(product(x)[0], first[0])
