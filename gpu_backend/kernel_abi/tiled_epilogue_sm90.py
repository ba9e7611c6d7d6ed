"""Generated from kernels/ops/gemm/tiled_epilogue_sm90.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
TILED_COLUMNS = 256
TILED_STAGING_BYTES = 16384
TILED_BOX = 16
