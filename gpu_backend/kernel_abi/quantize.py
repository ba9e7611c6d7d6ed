"""Generated from kernels/ops/quantize.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
QUANTIZE_THREADS = 1024
QUANTIZE_HELD = 4
