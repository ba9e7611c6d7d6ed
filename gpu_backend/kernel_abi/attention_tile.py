"""Generated from kernels/ops/attention_tile.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
TILE_KEYS = 16
