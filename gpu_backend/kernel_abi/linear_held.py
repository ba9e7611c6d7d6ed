"""Generated from kernels/ops/linear_held.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
HELD_TOKENS = 2
HELD_OUTPUTS = 8
HELD_DEPTH = 4
HELD_PAD = 32
