"""Generated from kernels/ops/attention/flash_accumulators_sm90.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
FLASH_KEYS = 128
FLASH_ATOM = 1024
