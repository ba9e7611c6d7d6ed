"""Generated from kernels/ops/moe/expert_plan.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
import numpy as np

PLAN_THREADS = 1024
PLAN_WORDS = 16
PLAN_TOKENS = 512

ExpertUnit = np.dtype({
    "names": ["expert", "first", "count", "groups_before"],
    "formats": ["<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 4, 8, 12],
    "itemsize": 16,
})
