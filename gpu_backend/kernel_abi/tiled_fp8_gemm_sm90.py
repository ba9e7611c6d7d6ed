"""Generated from kernels/ops/gemm/tiled_fp8_gemm_sm90.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
import numpy as np

TILED_FP8_COLUMNS = 176
TILED_FP8_TWO_PARTS = 128
TILED_FP8_INTERVAL = 4
TILED_FP8_PIPELINE_BYTES = 194560
TILED_FP8_SCALES = 880
TILED_FP8_WARPS = 8
TILED_FP8_SHARED_BYTES = 230944

TiledFp8Params = np.dtype({
    "names": ["x_scales", "w_scales", "x_stride", "n_out", "splits", "share", "part_rows"],
    "formats": ["<u8", "<u8", "<u4", "<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 8, 16, 20, 24, 28, 32],
    "itemsize": 40,
})
