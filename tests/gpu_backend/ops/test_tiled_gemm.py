"""How products of many rows are cut up: all of them, and few multiprocessors idle."""

from __future__ import annotations

import pytest

from gpu_backend.engines.graph_grid import prefill_sizes
from gpu_backend.ops.operations import Epilogue
from gpu_backend.ops.tiled_cut import (
    FEWEST_COLUMNS,
    MOST_BAND,
    PAIR,
    TILED_BOX,
    TILED_COLUMNS,
    TILED_ROWS,
    TILED_SILU_ROWS,
    tiled_cut,
    tiled_refusal,
)

ADD, SILU = Epilogue.ADD, Epilogue.GATED


def suits_tiled(rows: int, n_in: int, n_out: int, output: Epilogue, multiprocessors: int) -> bool:
    return tiled_refusal(rows, n_in, n_out, output, multiprocessors) is None


ROWS = [*range(448, 1024, 64), *range(1024, 2048, 128), *range(2048, 4096, 256), 4096, 8192]
LLAMA_8B = {
    "o": (4096, 4096, ADD),
    "gate_up": (4096, 14336, SILU),
    "down": (14336, 4096, ADD),
}


@pytest.mark.parametrize("n_multiprocessors", [78, 114, 132])
@pytest.mark.parametrize(("n_in", "n_out", "output"), [*LLAMA_8B.values(), (200, 408, ADD), (8, 8, SILU)])
def test_the_tiles_are_the_product(n_in: int, n_out: int, output: Epilogue, n_multiprocessors: int) -> None:
    for rows in (1, 127, 513, *ROWS):
        cut = tiled_cut(rows, n_in, n_out, output, n_multiprocessors)
        assert (cut.m, cut.n_in) == (rows, n_in)
        assert FEWEST_COLUMNS <= cut.columns <= TILED_COLUMNS
        assert cut.columns % TILED_BOX == 0
        assert (cut.x_tiles - 1) * cut.columns < rows <= cut.x_tiles * cut.columns
        w_rows = 2 * n_out if output is SILU else n_out
        assert (cut.w_tiles - 1) * PAIR * TILED_ROWS < w_rows <= cut.w_tiles * PAIR * TILED_ROWS
        assert 1 <= cut.band <= min(MOST_BAND, cut.x_tiles)


@pytest.mark.parametrize("name", sorted(LLAMA_8B))
@pytest.mark.parametrize("rows", [1024, 1088, 1152, 1280, 1536, 2048, 4096, 8192])
def test_no_number_of_tokens_leaves_many_multiprocessors_idle(name: str, rows: int) -> None:
    cut = tiled_cut(rows, *LLAMA_8B[name], 132)
    assert cut.pairs(132) <= 65
    assert 0.92 < cut.fill(132) <= 1


def test_where_cublas_leaves_multiprocessors_idle_the_residual_is_added_to_in_tiles() -> None:
    down = LLAMA_8B["down"]
    assert [rows for rows in prefill_sizes(8192) if suits_tiled(rows, *down, 132)] == [
        *(1408, 1664, 1792, 1920, 2304)
    ]
    assert not suits_tiled(1408, 25600, 5120, ADD, 132)  # Qwen3-32B's


def test_silu_mul_is_part_of_the_product_from_some_number_of_rows_on() -> None:
    sizes = prefill_sizes(8192)
    taken = [rows for rows in sizes if suits_tiled(rows, *LLAMA_8B["gate_up"], 132)]
    assert taken == [128, 192, 256, *(rows for rows in sizes if rows >= TILED_SILU_ROWS)]


def test_it_is_of_fewer_where_one_tile_holds_them_or_many_fill_the_gpu() -> None:
    sizes = range(16, TILED_SILU_ROWS, 16)
    one_tile = [rows for rows in sizes if suits_tiled(rows, *LLAMA_8B["gate_up"], 132)]
    assert one_tile == list(range(128, 257, 16))
    assert not [
        rows for rows in sizes if rows < 256 and suits_tiled(rows, 4096, 12288, SILU, 132)
    ]  # Qwen3-8B's
    full = [rows for rows in sizes if suits_tiled(rows, 2048, 8192, SILU, 132)]  # Llama-3.2-1B's
    assert {160, 256, 320, 384} <= set(full)
