"""Generated from kernels/ops/sampling/scores.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
NOT_TAKEN = 4294967293
