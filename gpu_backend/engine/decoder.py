"""The decoder kernel's arguments (kernels/decoder/arguments.h)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu_backend.cuda.kernels import stage_chunks
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.cuda.product import HALF_BYTES
from gpu_backend.cuda.stream import STREAM_CHUNK
from gpu_backend.cuda.tensor_map import tensor_map
from gpu_backend.engine.activations import Activations
from gpu_backend.engine.decoder_abi import DecoderBuffers, DecoderModel
from gpu_backend.engine.exchange import exchange_parts
from gpu_backend.engine.native_weights import DeviceWeights
from gpu_backend.model.config import ModelConfig

HALF_TILE = 8  # rows of a tile that lie together


def decoder_model(
    config: ModelConfig,
    weights: DeviceWeights,
    memory: DeviceMemory,
    kv_cache: int,
    layer_bytes: int,
    cache_maps: int,
) -> bytes:
    """blink_decoder_model by value; what it points to is allocated from `memory`.

    `layer_bytes` are those of a layer's keys, or of its values, which come right after them; `cache_maps` as
    NativeStep has them.
    """
    model = np.zeros((), DecoderModel)
    for name in ("embed", "rope"):
        model[name] = getattr(weights, name)
    for name in ("n_layers", "hidden", "n_heads", "n_kv_heads", "intermediate", "vocab_size", "norm_eps"):
        model[name] = getattr(config, name)
    model["hidden_chunks"] = stage_chunks(config.hidden)
    model["attention_chunks"] = stage_chunks(config.attention_width)
    model["intermediate_chunks"] = stage_chunks(config.intermediate)
    model["cache"], model["cache_bytes"], model["cache_maps"] = kv_cache, layer_bytes, cache_maps
    norms = [norm for layer in weights.layers for norm in (layer.input_norm, layer.post_norm)]
    halves = _gather(memory, [*norms, weights.final_norm], config.hidden)
    model["norms"] = _upload(memory, pair_tiles(halves).tobytes())
    if config.qk_norm:
        norms = [norm for layer in weights.layers for norm in (layer.q_norm, layer.k_norm)]
        model["head_norms"] = _upload(memory, _gather(memory, norms, config.head_dim).tobytes())
    model["maps"] = _upload(memory, b"".join(_maps(config, weights)))
    return model.tobytes()


def _gather(memory: DeviceMemory, norms: list[int], width: int) -> NDArray[np.uint16]:
    """The norms' weights, [norms][width]: no layer has to look up where its own are."""
    data = b"".join(memory.read(norm, HALF_BYTES * width) for norm in norms)
    return np.frombuffer(data, np.uint16).reshape(len(norms), width)


def pair_tiles(norms: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """[norms][hidden] with each element of a tile beside the one 8 behind it: a thread has both."""
    tiles = norms.reshape(len(norms), -1, 2, HALF_TILE)
    return np.ascontiguousarray(tiles.swapaxes(2, 3)).reshape(norms.shape)


def _upload(memory: DeviceMemory, data: bytes) -> int:
    address = memory.allocate(len(data))
    memory.write(address, memoryview(data))
    return address


def _maps(config: ModelConfig, weights: DeviceWeights) -> list[bytes]:
    """A tensor map of every matrix in the order in which a step uses them."""
    hidden = config.hidden
    maps = []
    for layer in weights.layers:
        maps += [
            _map(layer.qkv, config.qkv_width, hidden),
            _map(layer.o, hidden, config.attention_width),
            _map(layer.gate_up, 2 * config.intermediate, hidden, gate_up=True),
            _map(layer.down, hidden, config.intermediate),
        ]
    return [*maps, _map(weights.head, config.vocab_size, hidden)]


def _map(matrix: int, rows: int, columns: int, gate_up: bool = False) -> bytes:
    """Boxes of two times eight rows: neighbours, or of the gate's and the up projection's halves."""
    height = rows // 2 if gate_up else HALF_TILE
    shape, box = (rows // height, height, columns), (2, HALF_TILE, STREAM_CHUNK * stage_chunks(columns))
    return tensor_map(matrix, shape, box)


def decoder_buffers(config: ModelConfig, activations: Activations, max_splits: int, blocks: int) -> bytes:
    """blink_decoder_buffers by value, for so many blocks."""
    buffers = np.zeros((), DecoderBuffers)
    buffers["max_splits"] = max_splits
    for name in ("logits", "leavers"):
        buffers[name] = getattr(activations, name)
    parts = exchange_parts(config, blocks)
    buffers["norm_bytes"], buffers["layer_bytes"] = parts["second norm"], sum(parts.values())
    address = activations.exchange
    for name, size in parts.items():
        if name != "second norm":
            buffers[name] = address
        address += size
    return buffers.tobytes()
