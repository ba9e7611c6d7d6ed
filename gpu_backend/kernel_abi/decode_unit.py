"""Generated from kernels/megakernel/decode_unit.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
MIN_SPLIT_KEYS = 64
