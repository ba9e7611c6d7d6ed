"""Generated from kernels/ops/moe/single_token.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
SINGLE_OUTPUTS = 8
SINGLE_EXPERTS = 8
