"""Generated from kernels/ops/page_copy.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
COPY_BLOCKS = 64
COPY_THREADS = 256
COPY_AHEAD = 4
