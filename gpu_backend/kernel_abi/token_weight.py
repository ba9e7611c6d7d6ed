"""Generated from kernels/ops/sampling/token_weight.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
LAST_RANK = 4294967295
