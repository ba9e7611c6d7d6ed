"""Generated from kernels/ops/sampling/token_mask.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
WHOLE = 32768
MOST_GROUPS = 7168
