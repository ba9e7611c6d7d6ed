"""Generated from kernels/ops/moe/combine.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
SUM_AHEAD = 8
