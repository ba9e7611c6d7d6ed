"""Generated from kernels/ops/attention/decode_unit_sm90.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
UNIT_HEADS = 8
WIDE_UNIT_HEADS = 16
WIDE_UNIT_ROWS = 4
LARGEST_WIDE_HEAD = 128
TILE_WARPS = 4
HEAD_WARPS = 10
PIPELINE_WARPS = 5
ATTENTION_THREADS = 480
STAGE_ALIGN = 1024
ATTENTION_SHARED_BYTES = 131072
GROWING_QUERIES = 1
