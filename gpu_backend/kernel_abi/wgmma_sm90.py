"""Generated from kernels/primitives/wgmma_sm90.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
WARPGROUP = 128
SWIZZLE_BYTES = 128
GROUP_BYTES = 1024
NO_COLUMNS = 16
WGMMA_K = 16
