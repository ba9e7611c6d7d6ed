"""Generated from kernels/megakernel/megakernel_sm90.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
MEGAKERNEL_REGISTERS = 160
PRODUCER_REGISTERS = 64
CONSUMER_REGISTERS = 208
