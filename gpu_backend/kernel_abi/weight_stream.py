"""Generated from kernels/decoder/weight_stream.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
DECODER_WARPS = 8
DECODER_THREADS = 256
DECODER_BLOCK = 384
STAGE_CHUNKS = 8
STAGE_K = 256
STAGES = 3
STAGE_BYTES = 8192
PASS_TILES = 8
