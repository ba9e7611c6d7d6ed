"""Generated from kernels/ops/sampling/known_tokens.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
LOOPS = 2
MAPS_AT_ONCE = 4
MOST_MAPS = 52
ALL_CLASSES = 16777215
UNKNOWN = 65536
