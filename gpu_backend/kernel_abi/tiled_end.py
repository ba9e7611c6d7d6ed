"""Generated from kernels/ops/tiled_end.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
TILED_COLUMNS = 256
TILED_TURN_BYTES = 16384
TILED_BOX = 16
