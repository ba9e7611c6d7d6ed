"""What a skinny GEMM brings to L2 of the next one's weights (kernels/ops/gemm/weights_ahead.h)."""

from __future__ import annotations

from gpu_backend.arithmetic import ceil_div
from gpu_backend.kernel_abi.skinny_pipeline_sm90 import SKINNY_ROW_BYTES
from gpu_backend.ops.launch import Struct
from gpu_backend.ops.operations import Epilogue, MatMul
from gpu_backend.ops.skinny_cut import SkinnyCut

WEIGHTS_AHEAD = "<2Q6I"
NOTHING_AHEAD = Struct(WEIGHTS_AHEAD, (None, 0, 0, 0, 0, 0, 0, 0))
AHEAD_BYTES = 6 << 20  # what an H100 reads in 2 us; more delays the matmul that it was asked for in


def weights_ahead(after: MatMul, tiling: SkinnyCut, blocks: int) -> Struct:
    """Of the matmul `after`, which is cut so and runs on `blocks` multiprocessors: what its blocks read
    first. These are the first bytes of k, or of their part of k, of the rows of each block's first tile.
    """
    parts = 2 if after.epilogue is Epilogue.GATED else 1
    n_rows = min(after.n, tiling.clusters(blocks) * tiling.tile_rows // parts)
    row_bytes = after.k * after.weight.element.n_bits // 8
    split_bytes = tiling.share * tiling.panels * SKINNY_ROW_BYTES
    splits = ceil_div(row_bytes, split_bytes)  # those that are not past the end of k
    last = row_bytes - (splits - 1) * split_bytes  # of a row, what the last one has
    even = AHEAD_BYTES // (n_rows * parts * splits) // SKINNY_ROW_BYTES * SKINNY_ROW_BYTES
    n_bytes = min(max(even, SKINNY_ROW_BYTES), last)
    sizes = (after.n * row_bytes, n_rows, parts, splits, row_bytes, split_bytes, n_bytes)
    return Struct(WEIGHTS_AHEAD, (after.weight, *sizes))
