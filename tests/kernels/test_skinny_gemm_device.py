"""The skinny GEMM on the emulator: bulk copies arrive late and in any order, blocks take turns."""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass

import numpy as np
import pytest
from emulation import EPS, Emulate
from halves import NAN, TOLERANCE, Halves, assert_close, floats, random
from numpy.typing import NDArray
from products import OUTPUTS, Product
from reference_ops import SILU, call

from gpu_backend.ops.skinny_cut import Boxes, SkinnyCut, gate_up_boxes, matrix_boxes
from gpu_backend.ops.skinny_gemm import FUSED_NORM


@dataclass(frozen=True)
class FusedNorm:
    """FusedNorm of kernels/ops/gemm/skinny_epilogue_sm90.h: addresses, of which 0 is null."""

    sums_in: int = 0
    n_sums: int = 0
    eps: float = 0.0
    weight: int = 0
    scaled: int = 0
    sums_out: int = 0

    def pack(self) -> bytes:
        return struct.pack(FUSED_NORM, *astuple(self))


def share(n_in: int, panels: int, splits: int) -> int:
    """Stages of a block."""
    return -(-n_in // (64 * panels * splits))


def box_map(matrix: Halves, boxes: Boxes) -> NDArray[np.uint64]:
    """A tensor map as the emulator takes it (emulated_ptx.h)."""
    record = np.zeros(16, np.uint64)
    record[:12] = (matrix.ctypes.data, *boxes.shape, *boxes.strides, *boxes.box)
    return record


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize(
    ("m", "n_in", "n_out", "tile_rows", "panels", "stages", "splits", "blocks"),
    [
        (5, 128, 48, 48, 1, 3, 1, 1),
        (9, 64, 16, 16, 1, 3, 1, 1),
        (16, 200, 64, 32, 2, 3, 1, 3),  # a panel that ends inside, a tile a block and more
        (17, 512, 80, 80, 1, 4, 1, 2),
        (32, 1024, 96, 48, 2, 3, 2, 4),
        (25, 640, 160, 128, 1, 3, 4, 8),  # unequal shares of k
        (31, 192, 72, 128, 1, 2, 1, 1),  # a tile larger than the matrix
        (20, 128, 40, 16, 1, 5, 8, 40),  # shares of k that are empty
        (64, 384, 96, 96, 2, 2, 1, 1),
        (50, 320, 480, 112, 1, 3, 2, 6),
        (33, 200, 600, 96, 1, 2, 1, 2),  # tiles of twice 64 rows, and more than blocks
    ],
)
def test_skinny_gemm(
    emulate: Emulate, m: int, n_in: int, n_out: int, tile_rows: int, panels: int, stages: int,
    splits: int, blocks: int, output: str
) -> None:  # fmt: skip
    check_product(emulate, m, n_in, n_out, tile_rows, panels, stages, splits, blocks, output)


@pytest.mark.parametrize("output", [output for output in OUTPUTS if output != "add"])
@pytest.mark.parametrize(
    ("m", "n_in", "n_out", "tile_rows", "blocks"), [(64, 256, 480, 224, 2), (40, 192, 328, 176, 1)]
)
def test_high_tiles(
    emulate: Emulate, m: int, n_in: int, n_out: int, tile_rows: int, blocks: int, output: str
) -> None:
    check_product(emulate, m, n_in, n_out, tile_rows, 1, 3, 1, blocks, output)


def check_product(
    emulate: Emulate, m: int, n_in: int, n_out: int, tile_rows: int, panels: int, stages: int,
    splits: int, blocks: int, output: str, activation: int = SILU,
) -> None:  # fmt: skip
    """What lies behind the last row of x and of y is neither read nor written."""
    silu = output == "silu"
    rows = 2 * n_out if silu else n_out
    x, w = random(m + 1, n_in), random(rows, n_in, seed=1, scale=0.1)
    x[m] = NAN
    product = Product(x[:m], floats(w), n_out, output, activation)
    rings = (panels, stages, 1 + stages // 2, share(n_in, panels, splits), splits)
    cut = SkinnyCut(m, n_in, n_out, tile_rows, -(-rows // tile_rows), *rings)
    w_map = box_map(w, gate_up_boxes(n_in, n_out, tile_rows) if silu else matrix_boxes(n_in, rows, tile_rows))
    x_map = box_map(x, matrix_boxes(n_in, m, cut.columns))
    grid = cut.clusters(blocks)
    structs = [np.frombuffer(by_value.pack(), np.uint8) for by_value in (cut, FusedNorm())]
    shape = (OUTPUTS.index(output), cut.columns, cut.tiles, splits, grid, cut.threads, cut.shared_bytes)
    emulate("skinny_gemm", w_map, x_map, product.y, *structs, *shape)
    product.check()


@pytest.mark.parametrize(
    ("m", "inner", "hidden", "n_out", "tile_rows", "splits"),
    [
        (9, 64, 48, 40, 16, 1),
        (32, 512, 160, 64, 40, 4),
        (30, 320, 96, 24, 96, 8),
        (31, 192, 208, 72, 104, 1),
        (64, 256, 320, 96, 128, 2),
        (40, 128, 144, 48, 48, 1),
        (60, 64, 2240, 40, 16, 1),  # more sums than a round adds up
        (30, 64, 2080, 24, 16, 1),
    ],
)
@pytest.mark.parametrize("output", ["half", "silu", "float"])
def test_norm_between_products(
    emulate: Emulate, m: int, inner: int, hidden: int, n_out: int, tile_rows: int, splits: int, output: str
) -> None:
    """residual += x o^T, then norm(residual) w^T: the first prepares what the second needs of the norm."""
    x, o = random(m, inner), random(hidden, inner, seed=1, scale=0.1)
    weight, rows = random(hidden, seed=2), 2 * n_out if output == "silu" else n_out
    w = random(rows, hidden, seed=3, scale=0.1)
    residual = np.random.default_rng(4).standard_normal((m, hidden)).astype(np.float32)
    delta, normed = np.empty((m, hidden), np.float32), np.empty((m, hidden), np.float32)
    call("linear", floats(x), floats(o), delta, m, inner, hidden)
    total = residual.copy()
    call("residual_rmsnorm", total, delta, floats(weight), EPS, normed, hidden, m)
    expected = np.empty((m, rows), np.float32)
    call("linear", normed, floats(w), expected, m, hidden, rows)
    if output == "silu":
        product, expected = expected, np.empty((m, n_out), np.float32)
        call("gated", product, expected, n_out, m, SILU)

    first = SkinnyCut(
        m, inner, hidden, tile_rows, -(-hidden // tile_rows), *(1, 3, 2, share(inner, 1, splits), splits)
    )
    scaled, sums = (
        np.full((m, hidden), NAN, np.uint16),
        np.full((first.n_sums, first.columns), np.nan, np.float32),
    )
    maps = (
        box_map(o, matrix_boxes(inner, hidden, tile_rows)),
        box_map(x, matrix_boxes(inner, m, first.columns)),
    )
    leaves = FusedNorm(weight=weight.ctypes.data, scaled=scaled.ctypes.data, sums_out=sums.ctypes.data)
    structs = [np.frombuffer(by_value.pack(), np.uint8) for by_value in (first, leaves)]
    blocks = first.clusters(3)  # alone they have several tiles each
    shape = (first.columns, first.tiles, splits, blocks, first.threads, first.shared_bytes)
    emulate("skinny_gemm", *maps, residual, *structs, OUTPUTS.index("add"), *shape)
    assert_close(residual, total)

    second = SkinnyCut(m, hidden, n_out, 32, -(-rows // 32), *(1, 3, 2, share(hidden, 1, 1), 1))
    boxes = gate_up_boxes(hidden, n_out, 32) if output == "silu" else matrix_boxes(hidden, rows, 32)
    maps = box_map(w, boxes), box_map(scaled, matrix_boxes(hidden, m, second.columns))
    takes = FusedNorm(sums_in=sums.ctypes.data, n_sums=first.n_sums, eps=EPS)
    structs = [np.frombuffer(by_value.pack(), np.uint8) for by_value in (second, takes)]
    y = np.full((m, n_out), np.nan, np.float32) if output == "float" else np.full((m, n_out), NAN, np.uint16)
    shape = (second.columns, second.tiles, 1, second.n_tiles, second.threads, second.shared_bytes)
    emulate("skinny_gemm", *maps, y, *structs, OUTPUTS.index(output), *shape)
    assert_close(y if output == "float" else floats(y), expected, 2 * TOLERANCE)


def test_a_clusters_blocks_add_up_in_order(emulate: Emulate) -> None:
    """E18: by rank, to the last bit, whoever is first and whoever adds up."""
    m, n_in, n_out, splits = 20, 512, 64, 4
    x, w = random(m, n_in), random(n_out, n_in, seed=1)

    def multiply(first: int, last: int, splits: int) -> NDArray[np.float32]:
        part_x, part_w = (np.ascontiguousarray(matrix[:, first:last]) for matrix in (x, w))
        k = last - first
        cut = SkinnyCut(m, k, n_out, 64, 1, 1, 2, 2, share(k, 1, splits), splits)
        maps = box_map(part_w, matrix_boxes(k, n_out, 64)), box_map(part_x, matrix_boxes(k, m, cut.columns))
        structs = [np.frombuffer(by_value.pack(), np.uint8) for by_value in (cut, FusedNorm())]
        y = np.zeros((m, n_out), np.float32)
        shape = (
            OUTPUTS.index("float"),
            cut.columns,
            cut.tiles,
            splits,
            1,
            cut.threads,
            cut.shared_bytes,
        )
        emulate("skinny_gemm", *maps, y, *structs, *shape)
        return y

    expected = np.zeros((m, n_out), np.float32)
    for first in range(0, n_in, n_in // splits):
        expected += multiply(first, first + n_in // splits, 1)
    np.testing.assert_array_equal(multiply(0, n_in, splits), expected)
