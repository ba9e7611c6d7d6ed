"""Generated from kernels/ops/gemm/skinny_codes_sm90.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
SKINNY_CODE_PANEL = 256
SKINNY_CODE_TURN = 64
