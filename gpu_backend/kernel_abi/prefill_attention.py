"""Generated from kernels/ops/attention/prefill_attention.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
PREFILL_THREADS = 128
PREFILL_QUERIES = 64
