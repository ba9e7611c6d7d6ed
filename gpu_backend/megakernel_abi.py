"""Generated from kernels/megakernel/arguments.h by scripts/generate_abi.py. Do not edit."""

# fmt: off

import numpy as np


MEGAKERNEL_SHARED_BYTES = 231424
MEGAKERNEL_TOKENS = 8
STAGE_CHUNKS = 8
CODE_STAGE_CHUNKS = 4
CODE_STAGE_BYTES = 4608
MEGAKERNEL_LAYOUT_HASH = 0xb3d594af300494b6


TensorMap = np.dtype({
    "names": ["opaque"],
    "formats": [("<u8", (16,))],
    "offsets": [0],
    "itemsize": 128,
})

MegakernelModel = np.dtype({
    "names": ["maps", "embed", "norms", "head_norms", "weight_scales", "rope", "cache", "cache_bytes", "cache_maps", "cache_scales", "n_layers", "hidden", "n_heads", "n_kv_heads", "intermediate", "vocab_size", "hidden_chunks", "head_chunks", "attention_chunks", "intermediate_chunks", "norm_eps", "scale_bytes"],
    "formats": ["<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<f4", "<u4"],
    "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 84, 88, 92, 96, 100, 104, 108, 112, 116, 120, 124],
    "itemsize": 128,
})

MegakernelBuffers = np.dtype({
    "names": ["squares", "normed", "qkv", "attention", "product", "parts", "norm_bytes", "layer_bytes", "logits", "leavers", "max_splits"],
    "formats": ["<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u4"],
    "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80],
    "itemsize": 88,
})
