"""Generated from kernels/ops/attention/flash_producer_sm90.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
FLASH_GROUPS = 2
FLASH_ROWS = 128
FLASH_BOX_KEYS = 16
FLASH_STAGES = 2
FLASH_RAW_STAGES = 2
