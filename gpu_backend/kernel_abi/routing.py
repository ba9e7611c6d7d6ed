"""Generated from kernels/ops/moe/routing.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
NO_EXPERT = 4294967295
MAX_EXPERTS = 256
FEW_TOKENS = 8
ROUTE_WARPS = 4
ROUTE_PER_LANE = 8
