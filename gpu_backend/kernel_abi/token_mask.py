"""Generated from kernels/ops/sampling/token_mask.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
MOST_GROUPS = 16384
