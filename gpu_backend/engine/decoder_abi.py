"""Generated from kernels/decoder/arguments.h by scripts/generate_abi.py. Do not edit."""

# fmt: off

import numpy as np


DECODER_SHARED_BYTES = 231424
DECODER_LAYOUT_HASH = 0x61ac8a393b33a7ef


DecoderLayer = np.dtype({
    "names": ["input_norm", "qkv", "q_norm", "k_norm", "o", "post_norm", "gate_up", "down", "k_cache", "v_cache"],
    "formats": ["<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8"],
    "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64, 72],
    "itemsize": 80,
})

DecoderModel = np.dtype({
    "names": ["layers", "embed", "final_norm", "head", "inv_freq", "n_layers", "hidden", "n_heads", "n_kv_heads", "intermediate", "vocab_size", "norm_eps"],
    "formats": ["<u8", "<u8", "<u8", "<u8", "<u8", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<f4"],
    "offsets": [0, 8, 16, 24, 32, 40, 44, 48, 52, 56, 60, 64],
    "itemsize": 72,
})

DecoderBuffers = np.dtype({
    "names": ["residual", "squares", "qkv", "attention", "product", "logits", "partial", "arrivals", "meetings", "max_splits"],
    "formats": ["<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u4"],
    "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64, 72],
    "itemsize": 80,
})
