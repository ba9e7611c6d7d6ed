"""Generated from kernels/ops/attention/flash_attention_sm90.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
FLASH_THREADS = 384
FLASH_FP8_THREADS = 512
