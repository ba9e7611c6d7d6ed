"""Generated from kernels/ops/moe/expert_ring.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
RING_ROUNDS = 2
EXPERT_RING_BYTES = 65536
LONG_DOWN_CHUNKS = 13
TILE_SCALES = 32
SCALED_TILES = 4
