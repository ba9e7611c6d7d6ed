"""Generated from kernels/ops/flash_rows.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
FLASH_KEYS = 128
FLASH_ATOM = 1024
