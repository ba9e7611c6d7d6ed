"""Generated from kernels/ops/attention_plan.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
import numpy as np

CUT_THREADS = 1024
LANE_THREADS = 4

AttentionPiece = np.dtype({
    "names": ["lane", "token", "row", "position", "first", "keys", "split", "n_splits"],
    "formats": ["<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 4, 8, 12, 16, 20, 24, 28],
    "itemsize": 32,
})

AttentionCut = np.dtype({
    "names": ["usual", "least", "longest", "most"],
    "formats": ["<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 4, 8, 12],
    "itemsize": 16,
})
