"""Generated from kernels/ops/attention/kv_split_combine.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
MAX_SPLITS = 64
