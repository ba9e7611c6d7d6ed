"""Generated from kernels/ops/sample_select.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
BINS = 256
