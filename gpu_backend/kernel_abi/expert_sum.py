"""Generated from kernels/ops/expert_sum.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
SUM_AHEAD = 8
