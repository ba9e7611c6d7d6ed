"""Generated from kernels/ops/moe/router.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
ROUTER_EXPERTS = 16
ROUTER_TOKENS = 8
ROUTER_WARPS = 8
ROUTER_THREADS = 256
ROUTER_CHUNK = 32
ROUTER_DEPTH = 8
