"""Generated from kernels/primitives/fp8.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
SCALE_BLOCK = 128
FP8_GROUP = 16
