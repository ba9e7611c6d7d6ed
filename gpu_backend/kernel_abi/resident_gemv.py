"""Generated from kernels/ops/gemm/resident_gemv.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
RESIDENT_TOKENS = 2
RESIDENT_OUTPUTS = 8
RESIDENT_DEPTH = 4
RESIDENT_PAD = 32
