"""Generated from kernels/ops/wide_mail.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
FRAGMENT_BYTES = 2048
