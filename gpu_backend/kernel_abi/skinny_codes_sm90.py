"""Generated from kernels/ops/gemm/skinny_codes_sm90.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
SKINNY_CODE_PANEL = 256
SKINNY_CODE_TURN = 64
SKINNY_CODE_TURNS = 4
SKINNY_TURN_SCALES = 32
SKINNY_SCALE_BYTES = 2048
