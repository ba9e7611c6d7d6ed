"""Generated from kernels/ops/gemm/skinny_fp8_sm90.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
SKINNY_FP8_PANEL = 128
SKINNY_FP8_TURN = 32
SKINNY_FP8_TURNS = 4
