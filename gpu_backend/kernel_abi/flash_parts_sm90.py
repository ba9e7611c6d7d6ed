"""Generated from kernels/ops/attention/flash_parts_sm90.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
FLASH_PART_WORDS = 8
FLASH_WARPS = 8
