"""Generated from kernels/megakernel/weight_stream_sm90.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
MEGAKERNEL_WARPS = 8
MEGAKERNEL_THREADS = 256
MEGAKERNEL_BLOCK = 384
STAGE_K = 256
KEY_ALIGN = 1024
BOX_GRAIN = 16
STAGE_BYTES = 8192
PASS_TILES = 8
