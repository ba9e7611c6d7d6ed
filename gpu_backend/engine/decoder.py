"""The decoder kernel's arguments (kernels/decoder/arguments.h)."""

from __future__ import annotations

import numpy as np

from gpu_backend.engine.decoder_abi import DecoderBuffers, DecoderLayer, DecoderModel
from gpu_backend.engine.native_weights import DeviceWeights
from gpu_backend.model.config import ModelConfig


def decoder_layers(weights: DeviceWeights, kv_cache: int, layer_bytes: int) -> bytes:
    """blink_decoder_layer of every layer; `layer_bytes` are those of a layer's keys, or values."""
    layers = np.zeros(len(weights.layers), DecoderLayer)
    for index, (record, layer) in enumerate(zip(layers, weights.layers, strict=True)):
        for name in ("input_norm", "qkv", "q_norm", "k_norm", "o", "post_norm", "gate_up", "down"):
            record[name] = getattr(layer, name)
        record["k_cache"] = kv_cache + 2 * index * layer_bytes
        record["v_cache"] = record["k_cache"] + layer_bytes
    return layers.tobytes()


def decoder_model(config: ModelConfig, weights: DeviceWeights, layers: int) -> bytes:
    """blink_decoder_model by value; `layers` is the address of decoder_layers' records."""
    model = np.zeros((), DecoderModel)
    model["layers"], model["n_layers"] = layers, config.n_layers
    for name in ("embed", "final_norm", "head", "inv_freq"):
        model[name] = getattr(weights, name)
    for name in ("hidden", "n_heads", "n_kv_heads", "intermediate", "vocab_size", "norm_eps"):
        model[name] = getattr(config, name)
    return model.tobytes()


def decoder_buffers(activations: object, max_splits: int) -> bytes:
    """blink_decoder_buffers by value, from the attributes of the same names."""
    buffers = np.zeros((), DecoderBuffers)
    buffers["max_splits"] = max_splits
    for name in set(DecoderBuffers.names or ()) - {"max_splits"}:
        buffers[name] = getattr(activations, name)
    return buffers.tobytes()
