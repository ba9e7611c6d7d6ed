"""Generated from kernels/ops/gemm/weights_ahead.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
import numpy as np

WeightsAhead = np.dtype({
    "names": ["w", "part_bytes", "n_rows", "parts", "splits", "row_bytes", "split_bytes", "bytes"],
    "formats": ["<u8", "<u8", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 8, 16, 20, 24, 28, 32, 36],
    "itemsize": 40,
})
