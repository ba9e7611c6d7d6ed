"""Generated from kernels/ops/moe/expert_gemv.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
EXPERT_BLOCKS = 2
