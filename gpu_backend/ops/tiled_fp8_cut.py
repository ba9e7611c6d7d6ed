"""How a matmul of many rows in fp8 is cut into tiles, and its sums into splits of k
(kernels/ops/gemm/tiled_fp8_gemm_sm90.h)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

from gpu_backend.arithmetic import ceil_div
from gpu_backend.kernel_abi.tiled_epilogue_sm90 import TILED_BOX
from gpu_backend.kernel_abi.tiled_fp8_gemm_sm90 import TILED_FP8_COLUMNS, TILED_FP8_TWO_PARTS
from gpu_backend.kernel_abi.tiled_gemm_sm90 import TILED_PANEL, TILED_ROWS
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.ops.operations import Epilogue
from gpu_backend.ops.tiled_cut import MOST_BAND, PAIR, TiledParams

WORD = 2  # elements of fp8 in a word of 16 bits, of which the kernel copies rows
FEWEST_FP8_COLUMNS = 64  # of a tile: narrow tiles fill the multiprocessors at some hundred rows
SPLIT_OUTPUTS = (Epilogue.STORE, Epilogue.ADD)  # the sum of GATED's parts would need both of its factors
MOST_SPLITS = 8
FEWEST_STAGES = 8  # of a split: fewer do not fill the pipeline before they end

# What fits best the matmuls of an 8B model on an H100: of 80 to 512 rows however they are cut, where the
# cut that it chooses is the fastest or at most 6 % slower, and of 1,024 and 8,192 rows as far as they were
# measured. A block multiplies so many columns of a stage in a microsecond, and loses the time of some: in
# narrow tiles, as each reads the weights from shared memory, and where the tensor cores wait for their sums.
# All blocks read so many bytes of weights in a microsecond, of which the tiles after the first find most in
# L2. Both go on at once, and neither hides the other quite. Then the launch, the time of a tile beside its
# products, and the kernel that adds up splits, beside the bytes that it and the tiles move through L2.
COLUMNS_US = 355
# In tiles of up to TILED_FP8_TWO_PARTS columns, and in wider ones. By block, it follows from gate_up of 1,024
# rows (125) and 8,192 (135) in tiles of 128 columns, and of 8,192 in tiles of 176 (152), on an H200; fewer
# rows were not measured. The last was measured before scales were loaded for many stages at once.
LOST_COLUMNS = {ScaleForm.ROW: (20, 20), ScaleForm.BLOCK: (130, 150)}
READS_US, READ_AGAIN = 2_850_000, 1 / 4
HIDDEN = 4.5  # the exponent of a norm of both times: their sum were 1, their maximum infinity
LAUNCH_US, TILE_US = 2.2, 0.9
SUM_US, SUM_BYTES_US = 2.3, 3_750_000
STAGE_BYTES = TILED_ROWS * TILED_PANEL * WORD  # of the weights, a block


@dataclass(frozen=True)
class TiledFp8Cut:
    """The kernel's TiledParams, and of its TiledFp8Params how k is split."""

    params: TiledParams
    splits: int

    @property
    def share(self) -> int:
        """Words of k of a split: whole stages."""
        stages = ceil_div(self.params.n_in, TILED_PANEL)
        return TILED_PANEL * ceil_div(stages, self.splits)

    @property
    def part_rows(self) -> int:
        """Of a split's result."""
        return TILED_BOX * ceil_div(self.params.m, TILED_BOX)

    def pairs(self, multiprocessors: int) -> int:
        """The pairs of blocks that run at once: one multiprocessor is the scheduler's."""
        return min(self.params.tiles * self.splits, (multiprocessors - 1) // PAIR)


def tiling(rows: int, k: int, n: int, output: Epilogue, columns: int) -> TiledParams:
    """Tiles of so many columns."""
    w_tiles = ceil_div(2 * n if output is Epilogue.GATED else n, PAIR * TILED_ROWS)
    x_tiles = ceil_div(rows, columns)
    band = ceil_div(x_tiles, ceil_div(x_tiles, MOST_BAND))
    return TiledParams(rows, k // WORD, columns, w_tiles, x_tiles, band)


def possible_cuts(rows: int, k: int, n: int, output: Epilogue) -> list[TiledFp8Cut]:
    """Every width of tiles, with every number of splits of which none but the last is too short."""
    stages = ceil_div(k // WORD, TILED_PANEL)
    most = min(MOST_SPLITS, stages // FEWEST_STAGES) if output in SPLIT_OUTPUTS else 1
    widths = range(FEWEST_FP8_COLUMNS, TILED_FP8_COLUMNS + 1, TILED_BOX)
    return [
        TiledFp8Cut(tiling(rows, k, n, output, columns), splits)
        for columns, splits in itertools.product(widths, range(1, max(1, most) + 1))
        if (splits - 1) * ceil_div(stages, splits) < stages  # none is empty
    ]


@lru_cache(maxsize=4096)
def tiled_fp8_cut(
    rows: int, k: int, n: int, output: Epilogue, form: ScaleForm, multiprocessors: int
) -> TiledFp8Cut:
    """The cut that should take the least time on all multiprocessors but the scheduler's."""

    def order(cut: TiledFp8Cut) -> tuple[float, int, int]:
        return estimated_us(cut, n, form, multiprocessors), cut.splits, cut.params.columns

    return min(possible_cuts(rows, k, n, output), key=order)


def estimated_us(cut: TiledFp8Cut, n: int, form: ScaleForm, multiprocessors: int) -> float:
    """Of the tiles, and of the sum over splits."""
    columns = cut.params.columns
    lost = LOST_COLUMNS[form][columns > TILED_FP8_TWO_PARTS]
    pairs, share = (multiprocessors - 1) // PAIR, cut.share // TILED_PANEL
    waves = ceil_div(cut.params.tiles * cut.splits, pairs)
    products = waves * share * (columns + lost) / COLUMNS_US
    weights = cut.params.w_tiles * PAIR * ceil_div(cut.params.n_in, TILED_PANEL) * STAGE_BYTES
    reads = weights * (1 + READ_AGAIN * (cut.params.x_tiles - 1)) / READS_US
    both = math.pow(math.pow(products, HIDDEN) + math.pow(reads, HIDDEN), 1 / HIDDEN)
    tiles = LAUNCH_US + both + waves * TILE_US
    if cut.splits == 1:
        return tiles
    moved = 2 * cut.splits * cut.part_rows * n * 4
    return tiles + SUM_US + moved / SUM_BYTES_US
