"""Generated from kernels/ops/attention/kv_tile.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
TILE_KEYS = 16
GROUP_HEADS = 8
