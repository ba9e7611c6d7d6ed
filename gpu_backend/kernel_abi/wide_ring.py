"""Generated from kernels/ops/wide_ring.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
import numpy as np

WIDE_COPIERS = 64
WIDE_PANEL = 64
WIDE_ROW_BYTES = 128
WIDE_ATOM = 1024
WIDE_MAX_SLOTS = 32
WIDE_MAX_COLUMNS = 64
WIDE_RING_START = 4096

WideCut = np.dtype({
    "names": ["m", "n_in", "n_out", "tile_rows", "n_tiles", "panels", "w_slots", "x_slots", "share"],
    "formats": ["<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 4, 8, 12, 16, 20, 24, 28, 32],
    "itemsize": 36,
})
