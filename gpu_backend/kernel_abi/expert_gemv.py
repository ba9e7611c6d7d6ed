"""Generated from kernels/ops/moe/expert_gemv.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
EXPERT_BLOCKS = 2
LIKELY_PAIRS = 2
LIKELY_BYTES = 131072
