"""Generated from kernels/ops/sampling/shortlist.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
SHORTLIST = 512
