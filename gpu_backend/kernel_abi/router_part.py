"""Generated from kernels/ops/router_part.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
import numpy as np

SUM_PLACES = 4
PART_OUTPUTS = 8

RouterPart = np.dtype({
    "names": ["norm", "w", "sums", "n_experts"],
    "formats": ["<u8", "<u8", "<u8", "<u4"],
    "offsets": [0, 8, 16, 24],
    "itemsize": 32,
})
