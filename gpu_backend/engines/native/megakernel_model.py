"""What the megakernel has of a model, once for all steps (kernels/megakernel/arguments.h)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.cuda.tensor_map import tensor_map
from gpu_backend.element import Element
from gpu_backend.engines.native.model import DeviceLayer, DeviceWeights
from gpu_backend.kernel_abi.gemv import GEMV_CHUNK
from gpu_backend.megakernel_abi import MegakernelModel
from gpu_backend.models.description import Model
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.ops.matrix import KvCache, Matrix
from gpu_backend.ops.megakernel import (
    chunk_scale_bytes,
    head_chunks,
    scale_box_bytes,
    stage_chunks,
    word_columns,
)

HALF_TILE = 8  # rows of a tile that lie together


def megakernel_model(config: Model, weights: DeviceWeights, memory: DeviceMemory, cache: KvCache) -> bytes:
    """blink_megakernel_model by value; what it points to is allocated from `memory`. Raises CudaError."""
    model = np.zeros((), MegakernelModel)
    model["embed"], model["rope"] = weights.embed.address, weights.reaches[0].rope.address
    for name in ("n_layers", "hidden", "n_heads", "n_kv_heads", "intermediate", "vocab_size", "norm_eps"):
        model[name] = getattr(config, name)
    layer = weights.layers[0]
    model["hidden_chunks"] = _stage_chunks(layer.qkv)
    model["attention_chunks"] = _stage_chunks(layer.o)
    model["intermediate_chunks"] = _stage_chunks(layer.down)
    model["head_chunks"] = _head_chunks(weights)
    model["scale_bytes"] = chunk_scale_bytes(layer.qkv.scale_form)
    if layer.qkv.scale_form is ScaleForm.ROW:
        places = [m.scales.address for layer in weights.layers for m in _matrices(layer) if m.scales]
        model["weight_scales"] = _upload(memory, np.array(places, np.uint64).tobytes())
    model["cache"], model["cache_bytes"], model["cache_maps"] = cache.address, cache.layer_bytes, cache.maps
    scales = [scale for layer in weights.layers for scale in (layer.kv_scales.key, layer.kv_scales.value)]
    if cache.element is Element.FP8:
        model["cache_scales"] = _upload(memory, np.array(scales, np.float32).tobytes())
    norms = [norm for layer in weights.layers for norm in (layer.input_norm, layer.mlp_norm)]
    halves = _gather(memory, [*norms, weights.final_norm])
    model["norms"] = _upload(memory, pair_tiles(halves).tobytes())
    norms = [n for layer in weights.layers for n in (layer.q_norm, layer.k_norm) if n is not None]
    if norms:
        model["head_norms"] = _upload(memory, _gather(memory, norms).tobytes())
    model["maps"] = _upload(memory, b"".join(_maps(weights)))
    return model.tobytes()


def _gather(memory: DeviceMemory, norms: list[Matrix]) -> NDArray[np.uint16]:
    """The norms' weights, [norms][width]: no layer has to look up where its own are."""
    data = b"".join(memory.read(norm.address, norm.n_bytes) for norm in norms)
    return np.frombuffer(data, np.uint16).reshape(len(norms), -1)


def pair_tiles(norms: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """[norms][hidden] with each element of a tile beside the one 8 behind it: a thread has both."""
    tiles = norms.reshape(len(norms), -1, 2, HALF_TILE)
    return np.ascontiguousarray(tiles.swapaxes(2, 3)).reshape(norms.shape)


def _upload(memory: DeviceMemory, data: bytes) -> int:
    address = memory.allocate(len(data))
    memory.write(address, memoryview(data))
    return address


def _matrices(layer: DeviceLayer) -> tuple[Matrix, ...]:
    """In the order in which a step uses them."""
    return layer.qkv, layer.o, layer.gate_up, layer.down


def _stage_chunks(matrix: Matrix) -> int:
    return stage_chunks(matrix.columns, matrix.scale_form)


def _head_chunks(weights: DeviceWeights) -> int:
    return head_chunks(weights.head.columns, weights.layers[0].qkv.scale_form)


def _maps(weights: DeviceWeights) -> list[bytes]:
    """A tensor map of every matrix in the order in which a step uses them, then those of scales of codes."""
    of_layers = [(m, m is layer.gate_up) for layer in weights.layers for m in _matrices(layer)]
    maps = [_map(m, _stage_chunks(m), is_gate_up) for m, is_gate_up in of_layers]
    maps.append(_map(weights.head, _head_chunks(weights)))
    return maps + [_scale_map(*matrix) for matrix in of_layers if matrix[0].groups]


def _map(matrix: Matrix, chunks: int, gate_up: bool = False) -> bytes:
    words = matrix.columns // word_columns(matrix.scale_form)
    return _tile_map(matrix, matrix.address, words, GEMV_CHUNK * chunks, gate_up)


def _scale_map(matrix: Matrix, gate_up: bool) -> bytes:
    """Of the scales of codes, as words of 16 bits."""
    assert matrix.scales
    assert matrix.groups
    row_words = matrix.scales.n_bytes // matrix.rows // 2
    box_words = scale_box_bytes(_stage_chunks(matrix), matrix.columns, matrix.groups) // 2
    return _tile_map(matrix, matrix.scales.address, row_words, box_words, gate_up)


def _tile_map(matrix: Matrix, address: int, words: int, box_words: int, gate_up: bool) -> bytes:
    """Boxes of two times eight rows: neighbours, or of the gate's and the up projection's halves."""
    height = matrix.rows // 2 if gate_up else HALF_TILE
    return tensor_map(address, (matrix.rows // height, height, words), (2, HALF_TILE, box_words))
