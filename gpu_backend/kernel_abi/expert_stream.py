"""Generated from kernels/ops/moe/expert_stream.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
EXPERT_DEPTH = 4
