"""Generated from kernels/ops/gemm/split_k_reduction_sm90.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
FRAGMENT_BYTES = 2048
