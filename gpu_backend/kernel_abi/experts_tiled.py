"""Generated from kernels/ops/experts_tiled.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
TILE_UNIT = 160
TILE_WEIGHTS = 256
TILE_K = 64
TILE_STAGES = 4
TILE_THREADS = 384
TILE_LOADER_REGISTERS = 56
TILE_PRODUCT_REGISTERS = 224
TILE_SHARED_BYTES = 217152
