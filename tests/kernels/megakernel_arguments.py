"""The megakernel's arguments over numpy arrays, for the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
from decoder_model import LAYERS, MATRICES, VOCAB, Model
from emulation import EPS
from numpy.typing import NDArray
from test_attention_device import cache_map

from gpu_backend import megakernel_abi
from gpu_backend.engines.native.megakernel_model import pair_tiles
from gpu_backend.models.quantization import GroupForm, ScaleForm
from gpu_backend.ops.megakernel import chunk_scale_bytes, head_chunks, scale_box_bytes, stage_chunks


def tensor_map(matrix: NDArray[Any], is_gate_up: bool, box_bytes: int) -> NDArray[np.uint64]:
    """A tensor map as the emulator takes it (emulated_ptx.h), of words of 16 bits."""
    matrix = matrix.view(np.uint16)
    rows, columns = matrix.shape
    record = np.zeros(16, np.uint64)
    height = rows // 2 if is_gate_up else 8
    record[:5] = (matrix.ctypes.data, height, columns, 8, box_bytes // 2)
    return record


def tensor_maps(model: Model) -> NDArray[np.uint64]:
    """Those of a step's matrices, and then of the scales of codes."""
    form = model.form
    matrices = [layer[name] for layer in model.matrices for name in MATRICES]
    chunks = [stage_chunks(m.values.shape[1], form) for m in matrices]
    maps = [tensor_map(m.stored, i % 4 == 2, 64 * chunks[i]) for i, m in enumerate(matrices)]
    maps.append(tensor_map(model.head, False, 64 * head_chunks(model.hidden, form)))
    if isinstance(form, GroupForm):
        scales = [m.scales for m in matrices if m.scales is not None]
        boxes = [scale_box_bytes(n, m.values.shape[1], form) for n, m in zip(chunks, matrices, strict=True)]
        maps += [tensor_map(s, i % 4 == 2, boxes[i]) for i, s in enumerate(scales)]
    return np.array(maps)


def cache_maps(model: Model) -> NDArray[np.uint64]:
    """The same of each layer's keys and values."""
    records = np.zeros((LAYERS, 16), np.uint64)
    for record, (keys, _) in zip(records, model.cache, strict=True):
        record[:4] = cache_map(keys)
    return records


class Decoder:
    """The kernel's arguments over numpy arrays: what it computes is in `buffers` and the model's caches."""

    def __init__(self, model: Model, max_splits: int, blocks: int):
        self.arrays: list[NDArray[Any]] = []  # kept, because records hold addresses
        norms = [layer[name] for layer in model.layers for name in ("input_norm", "post_norm")]
        head_norms = [layer[name] for layer in model.layers for name in model.norms]
        matrices = [layer[name] for layer in model.matrices for name in MATRICES]
        in_fp8 = isinstance(model.form, ScaleForm)
        columns = (model.hidden, model.heads * model.head_dim, model.intermediate)
        chunks = [stage_chunks(n, model.form) for n in columns]
        chunks.append(head_chunks(model.hidden, model.form))
        places = np.array([m.scales.ctypes.data for m in matrices if m.scales is not None], np.uint64)
        self.model = self._record(
            megakernel_abi.MegakernelModel,
            {"maps": tensor_maps(model), "embed": model.embed, "rope": model.rope, "cache": model.cache,
             "cache_maps": cache_maps(model),
             "norms": pair_tiles(np.array([*norms, model.final_norm]))}
            | ({"head_norms": np.array(head_norms)} if head_norms else {})
            | ({"cache_scales": model.scales} if model.cache.dtype == np.uint8 else {})
            | ({"weight_scales": places} if in_fp8 else {}),
            {"n_layers": LAYERS, "hidden": model.hidden, "n_heads": model.heads, "n_kv_heads": model.kv_heads,
             "intermediate": model.intermediate, "vocab_size": VOCAB, "norm_eps": EPS,
             "scale_bytes": chunk_scale_bytes(model.form),
             "cache_bytes": model.cache[0, 0].nbytes,
             **dict(zip(("hidden_chunks", "attention_chunks", "intermediate_chunks", "head_chunks"), chunks,
                        strict=True))},
        )  # fmt: skip
        capacity, heads = megakernel_abi.MEGAKERNEL_TOKENS, model.heads
        width = (heads + 2 * model.kv_heads) * model.head_dim
        self.buffers: dict[str, NDArray[Any]] = {
            "logits": np.full((capacity, VOCAB), np.nan, np.float32),
            "leavers": np.zeros(1, np.uint32),
        }
        parts = {"squares": 4 * capacity * model.hidden // 16, "normed": 2 * capacity * model.hidden}
        norm_bytes = sum(parts.values())
        parts |= {
            "second": norm_bytes,
            "qkv": 2 * capacity * width,
            "attention": 2 * capacity * heads * model.head_dim,
            "product": 2 * capacity * model.intermediate,
            "parts": 16 * blocks * (model.head_dim + 4),
        }
        layer_bytes = sum(parts.values())
        self.exchange = np.zeros((LAYERS + 1) * layer_bytes, np.uint8)
        sizes = {"max_splits": max_splits, "norm_bytes": norm_bytes, "layer_bytes": layer_bytes}
        self.arguments = self._record(megakernel_abi.MegakernelBuffers, self.buffers, sizes)
        address = self.exchange.ctypes.data
        for name, size in parts.items():
            if name != "second":
                self.arguments[name] = address
            address += size

    def _record(
        self, dtype: np.dtype[Any], arrays: dict[str, NDArray[Any]], values: dict[str, float]
    ) -> NDArray[Any]:
        record = np.zeros((), dtype)
        self.arrays.extend(arrays.values())
        for name, array in arrays.items():
            record[name] = array.ctypes.data
        for name, value in values.items():
            record[name] = value
        return record
