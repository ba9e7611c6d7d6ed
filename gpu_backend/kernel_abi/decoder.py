"""Generated from kernels/decoder/decoder.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
DECODER_REGISTERS = 160
REQUEST_REGISTERS = 64
WORK_REGISTERS = 208
