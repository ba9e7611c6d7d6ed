"""Generated from kernels/ops/sampling/log_weight.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
LIKELIEST = 20
