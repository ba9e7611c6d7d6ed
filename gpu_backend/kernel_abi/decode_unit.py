"""Generated from kernels/ops/decode_unit.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
MIN_SPLIT = 64
