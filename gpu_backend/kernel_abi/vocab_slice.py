"""Generated from kernels/ops/sampling/vocab_slice.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
SAMPLE_THREADS = 1024
SAMPLE_WARPS = 32
SAMPLE_SEEN = 262144
SAMPLE_BLOCKS = 8
