"""Generated from kernels/ops/sampling/vocab_slice.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
SAMPLE_THREADS = 1024
SAMPLE_WARPS = 32
SAMPLE_SEEN = 262144
CANDIDATES = 1024
GROUP_THREADS = 8
GROUPS = 128
SAMPLE_BLOCKS = 8
