"""Generated from kernels/ops/attention_parts.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
MOST_PARTS = 64
