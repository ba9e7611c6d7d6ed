"""Generated from kernels/ops/gemm/skinny_epilogue_sm90.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
import numpy as np

FusedNorm = np.dtype({
    "names": ["sums_in", "n_sums", "eps", "weight", "scaled", "sums_out"],
    "formats": ["<u8", "<u4", "<f4", "<u8", "<u8", "<u8"],
    "offsets": [0, 8, 12, 16, 24, 32],
    "itemsize": 40,
})
