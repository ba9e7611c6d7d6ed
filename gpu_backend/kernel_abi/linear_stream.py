"""Generated from kernels/ops/linear_stream.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
STREAM_WARPS = 8
STREAM_THREADS = 256
STREAM_BLOCKS = 2
STREAM_CHUNK = 32
STREAM_ROWS = 16
STREAM_ROUND = 2048
