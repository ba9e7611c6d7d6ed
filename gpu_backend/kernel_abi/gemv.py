"""Generated from kernels/ops/gemm/gemv.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
GEMV_WARPS = 8
GEMV_THREADS = 256
GEMV_BLOCKS = 2
GEMV_CHUNK = 32
GEMV_ROWS = 16
GEMV_ROUND = 2048
