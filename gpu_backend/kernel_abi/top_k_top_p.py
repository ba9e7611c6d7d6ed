"""Generated from kernels/ops/sampling/top_k_top_p.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
BINS = 256
