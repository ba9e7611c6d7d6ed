"""Generated from kernels/ops/quantize_weight.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
WEIGHT_THREADS = 256
