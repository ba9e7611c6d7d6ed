"""Generated from kernels/reference/model.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
from enum import IntEnum

import numpy as np


MODEL_LAYOUT_HASH = 0x53e32762f2d7bee8


class Activation(IntEnum):
    SILU = 0
    GELU_TANH = 1
    CLAMPED_SWIGLU = 2


Layer = np.dtype({
    "names": ["input_norm", "qkv", "qkv_bias", "q_norm", "k_norm", "sinks", "o", "o_bias", "attention_out_norm", "mlp_norm", "router", "router_bias", "gate_up", "gate_up_bias", "down", "down_bias", "mlp_out_norm", "rope", "window", "k_scale", "v_scale", "growth_beta", "growth_context", "reserved"],
    "formats": ["<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u4", "<f4", "<f4", "<f4", "<u4", "<u4"],
    "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136, 144, 148, 152, 156, 160, 164],
    "itemsize": 168,
})

Model = np.dtype({
    "names": ["n_layers", "hidden", "n_heads", "n_kv_heads", "head_dim", "intermediate", "vocab_size", "activation", "norm_eps", "embed_scale", "n_experts", "experts_per_token", "expert_intermediate", "renormalise", "embed", "final_norm", "head", "layers"],
    "formats": ["<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<f4", "<f4", "<u4", "<u4", "<u4", "<u4", "<u8", "<u8", "<u8", "<u8"],
    "offsets": [0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 64, 72, 80],
    "itemsize": 88,
})
