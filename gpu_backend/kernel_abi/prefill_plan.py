"""Generated from kernels/ops/attention/prefill_plan.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
import numpy as np

PREFILL_PLAN_THREADS = 512

PrefillUnit = np.dtype({
    "names": ["sequence", "first", "count", "keys", "past", "part", "parts", "first_tile", "end_tile"],
    "formats": ["<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 4, 8, 12, 16, 20, 24, 28, 32],
    "itemsize": 48,
})
