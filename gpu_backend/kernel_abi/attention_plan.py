"""Generated from kernels/ops/attention/attention_plan.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
import numpy as np

SPLIT_PLAN_THREADS = 1024
SLOT_THREADS = 4

KvSplit = np.dtype({
    "names": ["row", "sharing", "sequence", "position", "first", "keys", "index", "n_splits"],
    "formats": ["<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 4, 8, 12, 16, 20, 24, 28],
    "itemsize": 32,
})

KvSplitLimits = np.dtype({
    "names": ["usual", "least", "longest", "most"],
    "formats": ["<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 4, 8, 12],
    "itemsize": 16,
})
