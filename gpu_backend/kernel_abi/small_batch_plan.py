"""Generated from kernels/ops/moe/small_batch_plan.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
import numpy as np

from gpu_backend.abi import StepSet

EXPERT_WARPS = 8
EXPERT_THREADS = 256
PAIR_GROUP = 8
SMALL_BATCH_TOKENS = 128
SMALL_BATCH_PAIRS = 2048
FEW_PAIRS = 256

Routing = np.dtype({
    "names": ["set", "logits", "topk_ids", "weight", "n_experts", "renormalise"],
    "formats": [StepSet, "<u8", "<u8", "<u8", "<u4", "<u4"],
    "offsets": [0, 72, 80, 88, 96, 100],
    "itemsize": 104,
})
