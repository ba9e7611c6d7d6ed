"""Generated from kernels/model.h by scripts/generate_abi.py. Do not edit."""

# fmt: off

import numpy as np


MODEL_LAYOUT_HASH = 0x52fd029d67a426f5


Layer = np.dtype({
    "names": ["input_norm", "qkv", "q_norm", "k_norm", "o", "post_norm", "router", "gate_up", "down"],
    "formats": ["<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8"],
    "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64],
    "itemsize": 72,
})

Model = np.dtype({
    "names": ["n_layers", "hidden", "n_heads", "n_kv_heads", "head_dim", "intermediate", "vocab_size", "norm_eps", "n_experts", "experts_per_token", "expert_intermediate", "renormalise", "inv_freq", "embed", "final_norm", "head", "layers"],
    "formats": ["<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<f4", "<u4", "<u4", "<u4", "<u4", "<u8", "<u8", "<u8", "<u8", "<u8"],
    "offsets": [0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 56, 64, 72, 80],
    "itemsize": 88,
})
