"""Generated from kernels/ops/gemm/code_gemv.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
CODE_GEMV_SLOTS = 8
CODE_GEMV_BYTES = 81920
CODE_GEMV_SUM_BYTES = 128
