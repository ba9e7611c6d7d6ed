"""Generated from kernels/ops/gate.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
GATE_REGISTERS = 32
