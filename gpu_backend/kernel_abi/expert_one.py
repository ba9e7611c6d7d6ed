"""Generated from kernels/ops/expert_one.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
ONE_OUTPUTS = 8
ONE_EXPERTS = 8
ONE_DEPTH = 8
