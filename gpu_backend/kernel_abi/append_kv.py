"""Generated from kernels/ops/attention/append_kv.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
APPEND_THREADS = 512
