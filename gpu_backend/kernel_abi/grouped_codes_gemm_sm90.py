"""Generated from kernels/ops/moe/grouped_codes_gemm_sm90.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
GROUPED_CODES_UNIT = 128
GROUPED_CODES_K = 128
GROUPED_CODES_STAGES = 4
GROUPED_CODES_ROW = 64
GROUPED_CODES_PANELS = 2
WINDOW_BYTES = 16
WINDOW_PIECE = 8
WINDOW_PIECES = 3
GROUPED_CODES_SHARED_BYTES = 225344
