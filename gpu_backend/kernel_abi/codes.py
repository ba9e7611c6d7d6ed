"""Generated from kernels/primitives/codes.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
CODE_GROUP = 32
NUMBER_SIGN = 2147516416
