"""Generated from kernels/ops/attention_unit.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
UNIT_HEADS = 8
TILE_WARPS = 4
HEAD_WARPS = 10
RING_WARPS = 5
ATTENTION_THREADS = 480
RING_ALIGN = 1024
ATTENTION_SHARED_BYTES = 131072
