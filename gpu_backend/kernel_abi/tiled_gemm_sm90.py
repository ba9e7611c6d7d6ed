"""Generated from kernels/ops/gemm/tiled_gemm_sm90.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
import numpy as np

TILED_THREADS = 384
TILED_ROWS = 128
TILED_PANEL = 64
TILED_WBYTES = 16384
TILED_PIPELINE_BYTES = 196608
TILED_MAX_STAGES = 6
TILED_PRODUCER_REGISTERS = 40
TILED_CONSUMER_REGISTERS = 232
TILED_SHARED_BYTES = 229472

TiledParams = np.dtype({
    "names": ["m", "n_in", "columns", "w_tiles", "x_tiles", "band"],
    "formats": ["<u4", "<u4", "<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 4, 8, 12, 16, 20],
    "itemsize": 24,
})
