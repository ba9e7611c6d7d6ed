"""Generated from kernels/ops/moe/grouped_fp8_gemm_sm90.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
GROUPED_FP8_UNIT = 128
GROUPED_FP8_K = 128
GROUPED_FP8_STAGES = 4
GROUPED_FP8_SHARED_BYTES = 207424
