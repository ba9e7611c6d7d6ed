"""Generated from kernels/ops/sampling/sample.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
SAMPLE_SHARED_BYTES = 45056
