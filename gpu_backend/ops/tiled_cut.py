"""The tiling of a matmul of many rows (kernels/ops/gemm/tiled_gemm_sm90.h), and which matmuls that kernel
gets."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from functools import lru_cache

import numpy as np

from gpu_backend.arithmetic import ceil_div
from gpu_backend.kernel_abi.tiled_epilogue_sm90 import TILED_BOX, TILED_COLUMNS
from gpu_backend.kernel_abi.tiled_gemm_sm90 import TILED_ROWS
from gpu_backend.ops.operations import Epilogue

TILED_OUTPUTS = (Epilogue.ADD, Epilogue.GATED)
PAIR = 2  # blocks that share a tile
FEWEST_COLUMNS = 128
MOST_BAND = 8  # the most tiles along x whose rows of x stay in L2 together
TILE_OVERHEAD = 8  # the fixed time of a tile, in the time that one column takes

# From this many rows on, the kernel with silu * mul is faster than cuBLAS followed by a second kernel. At
# 448 rows, for which cuBLAS chooses badly, it is faster by far: 183 us instead of 289 with 8B parameters.
# With fewer rows it is faster if one tile holds them all, or if several tiles fill the GPU: by 0 to 3 % of a
# step with 8B parameters, by 1 to 6 % with 1B.
TILED_SILU_ROWS = 448
ONE_TILE_FILL = 0.8
FULL = 0.95
# For "add" cuBLAS needs no second kernel. There this kernel is faster if it leaves few multiprocessors idle
# and cuBLAS many, which is so at numbers of rows that are no multiple of 512. With fewer rows sometimes one
# is faster and sometimes the other; with more, both fill the GPU. Narrow tiles move more bytes, which costs
# power, and power limits a long prefill: with 144 columns a step of 1152 tokens of Llama-3-8B took 1.9 %
# longer, although each matmul alone took less.
ADD_BETWEEN = (1024, 2560)
ADD_CUBLAS_ROWS = 512
ADD_COLUMNS = 176


@dataclass(frozen=True)
class TiledParams:
    """The kernel's TiledParams, field by field, and what follows from them."""

    m: int
    n_in: int
    columns: int
    w_tiles: int
    x_tiles: int
    band: int

    def pack(self) -> bytes:
        """The struct by value."""
        return np.array(astuple(self), "<u4").tobytes()

    @property
    def tiles(self) -> int:
        return self.w_tiles * self.x_tiles

    def pairs(self, n_multiprocessors: int) -> int:
        """The pairs of blocks that run at once: one multiprocessor is the scheduler's."""
        return min(self.tiles, (n_multiprocessors - 1) // PAIR)

    def fill(self, n_multiprocessors: int) -> float:
        """The share of all multiprocessors' time that rows of x are multiplied in."""
        pairs = (n_multiprocessors - 1) // PAIR
        return self.m * self.w_tiles / (ceil_div(self.tiles, pairs) * pairs * self.columns)


@lru_cache(maxsize=4096)
def tiled_cut(rows: int, n_in: int, n_out: int, output: Epilogue, n_multiprocessors: int) -> TiledParams:
    """The tiling of a matmul on all multiprocessors but the scheduler's. `output`: one of TILED_OUTPUTS.

    Tiles have as many columns as make the last wave of tiles full: 1152 tokens in tiles of 256 would take
    Llama-3-8B's o and down as long as 2048 do.
    """
    w_tiles = ceil_div(2 * n_out if output is Epilogue.GATED else n_out, PAIR * TILED_ROWS)
    pairs = (n_multiprocessors - 1) // PAIR

    def cost(columns: int) -> int:
        waves = ceil_div(w_tiles * ceil_div(rows, columns), pairs)
        return waves * (columns + TILE_OVERHEAD)

    columns = min(range(TILED_COLUMNS, FEWEST_COLUMNS - 1, -TILED_BOX), key=cost)
    x_tiles = ceil_div(rows, columns)
    return TiledParams(rows, n_in, columns, w_tiles, x_tiles, ceil_div(x_tiles, ceil_div(x_tiles, MOST_BAND)))


def tiled_refusal(rows: int, n_in: int, n_out: int, output: Epilogue, n_multiprocessors: int) -> str | None:
    """Why cuBLAS is faster, or None: measured on an H200 with 8B, 1B and 32B parameters."""
    if output not in TILED_OUTPUTS:
        return "it serves additions and silu * mul alone"
    tiling = tiled_cut(rows, n_in, n_out, output, n_multiprocessors)
    fill = tiling.fill(n_multiprocessors)
    idle = f"its tiles would keep {fill:.0%} of the multiprocessors busy"
    if output is Epilogue.GATED:
        enough = rows >= TILED_SILU_ROWS or fill >= (ONE_TILE_FILL if tiling.x_tiles == 1 else FULL)
        return None if enough else idle
    if not ADD_BETWEEN[0] < rows < ADD_BETWEEN[1] or rows % ADD_CUBLAS_ROWS == 0:
        return f"of {rows} rows cuBLAS leaves no multiprocessors idle"
    if tiling.columns < ADD_COLUMNS:
        return f"tiles of {tiling.columns} columns cost power"
    return None if fill >= FULL else idle
