"""Generated from kernels/ops/gemm/unpack.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
UNPACK_THREADS = 256
UNPACK_COLUMNS = 8
