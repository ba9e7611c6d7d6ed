"""Generated from kernels/ops/moe/fused_router.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
import numpy as np

SUM_PLACES = 4
FUSED_ROUTER_OUTPUTS = 8

FusedRouter = np.dtype({
    "names": ["norm", "w", "sums", "n_experts"],
    "formats": ["<u8", "<u8", "<u8", "<u4"],
    "offsets": [0, 8, 16, 24],
    "itemsize": 32,
})
