"""Generated from kernels/ops/gemm/skinny_pipeline_sm90.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
import numpy as np

SKINNY_PRODUCERS = 64
SKINNY_CONSUMER_REGISTERS = 112
SKINNY_PRODUCER_REGISTERS = 32
SKINNY_TURN_FRAGMENTS = 2
SKINNY_PANEL = 64
SKINNY_ROW_BYTES = 128
SKINNY_ATOM = 1024
SKINNY_MAX_STAGES = 32
SKINNY_MAX_COLUMNS = 64
SKINNY_PIPELINE_START = 4096

SkinnyParams = np.dtype({
    "names": ["m", "n_in", "n_out", "tile_rows", "n_tiles", "panels", "w_stages", "x_stages", "share"],
    "formats": ["<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 4, 8, 12, 16, 20, 24, 28, 32],
    "itemsize": 36,
})
