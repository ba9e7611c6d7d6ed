"""Generated from kernels/ops/attention_flash.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
FLASH_THREADS = 384
