"""The megakernel on the emulator, whose blocks take turns and whose bulk copies arrive late and in any
order, against a step made of the ops' CPU references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attention_step import FP8_NAN, HALVES
from emulation import EPS, Emulate
from halves import NAN, Halves, assert_close, floats, random
from numpy.typing import NDArray
from reference_ops import SILU, Floats, StepData, call, rope_table
from test_attention_device import cache_map
from weights import weights

from gpu_backend import megakernel_abi
from gpu_backend.engines.native.megakernel_model import pair_tiles
from gpu_backend.models.fp8 import from_fp8, to_fp8
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.ops.megakernel import stage_chunks

CELLS, VOCAB, LAYERS = 11520, 640, 3
MATRICES = ("qkv", "o", "gate_up", "down")


class Model:
    """Random weights, with the caches of its layers."""

    def __init__(
        self,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        intermediate: int,
        *,
        normed: bool,
        page_size: int,
        scales: tuple[float, float] = HALVES,
        form: ScaleForm | None = None,
    ):
        self.hidden, self.heads, self.kv_heads, self.head_dim = hidden, heads, kv_heads, head_dim
        self.intermediate = intermediate
        shapes: dict[str, tuple[int, ...]] = {
            "input_norm": (hidden,),
            "qkv": ((heads + 2 * kv_heads) * head_dim, hidden),
            "q_norm": (head_dim,),
            "k_norm": (head_dim,),
            "o": (hidden, heads * head_dim),
            "post_norm": (hidden,),
            "gate_up": (2 * intermediate, hidden),
            "down": (hidden, intermediate),
        }
        self.layers = [
            {name: self._weight(shape, 20 * i + j) for j, (name, shape) in enumerate(shapes.items())}
            for i in range(LAYERS)
        ]
        self.matrices = [{name: weights(layer[name], form) for name in MATRICES} for layer in self.layers]
        self.cache = random(LAYERS, 2, CELLS // page_size, kv_heads, page_size, head_dim, seed=4)
        self.scales, self.none = np.array([scales] * LAYERS, np.float32), NAN
        if scales != HALVES:  # each layer has its own
            self.scales *= 1 + np.arange(LAYERS, dtype=np.float32)[:, None] / 8
            of_cache = self.scales[:, :, None, None, None, None]
            self.cache, self.none = to_fp8(floats(self.cache) / of_cache), FP8_NAN
        self.norms = ("q_norm", "k_norm") if normed else ()
        self.embed, self.head = random(VOCAB, hidden, seed=1), self._weight((VOCAB, hidden), 3)
        self.final_norm = random(hidden, seed=2)
        self.rope = rope_table(head_dim)

    def values(self, layer: int) -> tuple[Floats, Floats]:
        """What a layer's cache holds."""
        if self.cache.dtype == np.uint16:
            return floats(self.cache[layer, 0]), floats(self.cache[layer, 1])
        keys, values = (from_fp8(self.cache[layer, side]) * self.scales[layer, side] for side in range(2))
        return keys, values

    @staticmethod
    def _weight(shape: tuple[int, ...], seed: int) -> Halves:
        return random(*shape, seed=seed, scale=shape[-1] ** -0.5 if len(shape) == 2 else 1)

    def step(self, arrays: StepData) -> tuple[Floats, list[tuple[Floats, Floats]]]:
        """Logits of a step's tokens, and the layers' caches after it."""
        tokens, width = len(arrays.token_sequence), self.heads + 2 * self.kv_heads
        residual, caches = np.zeros((tokens, self.hidden), np.float32), []
        arrays.call("embed", floats(self.embed), residual, self.hidden, 1.0, tokens)
        for index, layer in enumerate(self.layers):
            w = {name: floats(weight) for name, weight in layer.items()}
            w |= {name: matrix.values for name, matrix in self.matrices[index].items()}
            qkv = self._linear(self._norm(residual, w["input_norm"]), w["qkv"]).reshape(tokens, width, -1)
            norms = [w[name] if name in self.norms else None for name in ("q_norm", "k_norm")]
            sizes = (self.heads, self.kv_heads, self.head_dim, tokens)
            cache, scales = self.values(index), map(float, self.scales[index])
            arrays.call("rope", qkv, None, *norms, EPS, self.rope, *cache, *scales, *sizes)
            attention = np.zeros((tokens, self.heads * self.head_dim), np.float32)
            arrays.call("attention", qkv, *cache, attention, *sizes[:3], 0, tokens)
            caches.append(cache)
            residual += self._linear(attention, w["o"])
            gate_up = self._linear(self._norm(residual, w["post_norm"]), w["gate_up"])
            call("gated", gate_up, product := np.zeros((tokens, self.intermediate), np.float32),
                 self.intermediate, tokens, SILU)  # fmt: skip
            residual += self._linear(product, w["down"])
        return self._linear(self._norm(residual, floats(self.final_norm)), floats(self.head)), caches

    @staticmethod
    def _norm(residual: Floats, weight: Floats) -> Floats:
        out = np.empty_like(residual)
        arguments = (residual.copy(), np.zeros_like(residual), weight, EPS, out)
        call("residual_rmsnorm", *arguments, residual.shape[1], len(residual))
        return out

    @staticmethod
    def _linear(x: Floats, w: Floats) -> Floats:
        y = np.empty((len(x), len(w)), np.float32)
        call("linear", x, w, y, *x.shape, len(w))
        return y


def tensor_map(matrix: NDArray[Any], is_gate_up: bool) -> NDArray[np.uint64]:
    """A tensor map as the emulator takes it (emulated_ptx.h), of words of 16 bits."""
    matrix = matrix.view(np.uint16)
    rows, columns = matrix.shape
    record = np.zeros(16, np.uint64)
    height = rows // 2 if is_gate_up else 8
    record[:5] = (matrix.ctypes.data, height, columns, 8, 32 * stage_chunks(columns))
    return record


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
        maps = [tensor_map(w, i % 4 == 2) for i, w in enumerate([*(m.stored for m in matrices), model.head])]
        in_fp8 = matrices[0].scales is not None
        columns = (model.hidden, model.heads * model.head_dim, model.intermediate)
        chunks = [stage_chunks(n // 2 if in_fp8 else n) for n in columns]
        chunks.append(stage_chunks(model.hidden))
        places = np.array([m.scales.ctypes.data for m in matrices if m.scales is not None], np.uint64)
        self.model = self._record(
            megakernel_abi.MegakernelModel,
            {"maps": np.array(maps), "embed": model.embed, "rope": model.rope, "cache": model.cache,
             "cache_maps": cache_maps(model),
             "norms": pair_tiles(np.array([*norms, model.final_norm]))}
            | ({"head_norms": np.array(head_norms)} if head_norms else {})
            | ({"cache_scales": model.scales} if model.cache.dtype == np.uint8 else {})
            | ({"weight_scales": places} if in_fp8 else {}),
            {"n_layers": LAYERS, "hidden": model.hidden, "n_heads": model.heads, "n_kv_heads": model.kv_heads,
             "intermediate": model.intermediate, "vocab_size": VOCAB, "norm_eps": EPS,
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


Cases = dict[str, tuple[list[int], int, tuple[int, ...]]]
CASES: Cases = {
    "one": ([130], 4, (256, 8, 2, 64, 512)),
    "many splits": ([700], 12, (256, 4, 1, 64, 512)),
    "few": ([0, 17, 400], 8, (512, 4, 2, 128, 256)),
    "eight": ([5, 300, 64, 63, 1, 257, 130, 16], 5, (256, 8, 2, 64, 2560)),
    "eight in a turn": ([400, 17, 0, 300, 64, 128, 80, 90], 17, (512, 4, 2, 128, 512)),
    "odd stages": ([31, 200], 12, (768, 2, 2, 128, 2304)),
    "many stages": ([65], 5, (256, 2, 2, 128, 2816)),
    "two": ([65, 1000], 3, (256, 2, 1, 128, 2816)),
    "odd four": ([64, 80, 16, 128], 5, (256, 2, 2, 128, 2816)),
    "parts": ([1000], 16, (256, 4, 1, 128, 2048)),
    "most": ([2400], 40, (768, 4, 1, 128, 768)),
}


FP8_CASES: Cases = {
    "one": ([130], 4, (512, 8, 2, 64, 512)),
    "eight": ([5, 300, 64, 63, 1, 257, 130, 16], 5, (512, 8, 2, 64, 2560)),
    "odd stages": ([31, 200], 12, (1536, 4, 2, 128, 3584)),
    "half stages": ([31, 20], 8, (512, 8, 2, 64, 2048)),
    "many stages": ([65], 5, (512, 4, 2, 128, 5632)),
}


def named(cases: Cases) -> list[Any]:
    """Of which the first is quick."""
    return [
        pytest.param(*case, id=name, marks=[pytest.mark.slow] * (name != "one"))
        for name, case in cases.items()
    ]


@pytest.mark.parametrize(
    ("positions", "blocks", "sizes"),
    named(FP8_CASES),
)
def test_weights_in_fp8(emulate: Emulate, positions: list[int], blocks: int, sizes: tuple[int, ...]) -> None:
    """With a scale for each row; the head is of halves."""
    check_decoder(emulate, positions, blocks, sizes, False, HALVES, ScaleForm.ROW)


def test_weights_and_cache_in_fp8(emulate: Emulate) -> None:
    check_decoder(emulate, *FP8_CASES["one"], False, (0.75, 0.25), ScaleForm.ROW)


@pytest.mark.parametrize(
    ("positions", "blocks", "sizes"),
    named(CASES),
)
@pytest.mark.parametrize(
    ("normed", "scales"),
    [
        (False, HALVES),
        (True, HALVES),
        (False, (0.75, 0.25)),
        pytest.param(True, (0.5, 2.0), marks=pytest.mark.slow),
    ],
)
def test_decoder(
    emulate: Emulate,
    positions: list[int],
    blocks: int,
    sizes: tuple[int, ...],
    normed: bool,
    scales: tuple[float, float],
) -> None:
    """Blocks with more and fewer tiles of a matrix, several passes, stages that are not full, splits, and
    batch slots that are not in use. A second run from the same state gives the same bits, since nothing is
    added up
    in the order of arrival, and every counter is as it was."""
    check_decoder(emulate, positions, blocks, sizes, normed, scales)


def check_decoder(
    emulate: Emulate,
    positions: list[int],
    blocks: int,
    sizes: tuple[int, ...],
    normed: bool,
    scales: tuple[float, float],
    form: ScaleForm | None = None,
) -> None:
    page_size = 32 if normed else 16
    rows, context = (11, 1024) if max(positions) < 1024 else (4, 2560)
    arrays = StepData([(row, p, p + 1) for row, p in enumerate(positions)], vocab_size=VOCAB, max_batch=rows,
                  max_context=context, page_size=page_size, total_pages=CELLS // page_size)  # fmt: skip

    model = Model(*sizes, normed=normed, page_size=page_size, scales=scales, form=form)
    used = np.zeros((CELLS // page_size, page_size), bool)
    for row, position in enumerate(positions):
        earlier = np.arange(position)
        used[arrays.block_table[row, earlier // page_size], earlier % page_size] = True
    model.cache[:] = np.where(used[:, None, :, None], model.cache, model.none)  # nobody has written there
    for row, position in enumerate(positions):  # values that are missed if they are: 8 times as large
        late = np.arange(position - position // 6, position)
        model.cache[:, 1, arrays.block_table[row, late // page_size], :, late % page_size] += 3 << (
            7 if scales == HALVES else 3
        )
    expected, caches = model.step(arrays)
    group = min(4, model.heads // model.kv_heads)
    runs = []
    for _ in range(2):
        decoder = Decoder(model, 64, blocks)
        arguments = (arrays.step_set, arrays.tables, decoder.model, decoder.arguments)
        emulate("megakernel", *arguments, model.head_dim, group, blocks)
        logits = decoder.buffers["logits"]
        assert_close(logits[: len(positions)], expected, 3e-2)
        assert np.isnan(logits[len(positions) :]).all()
        assert not decoder.buffers["leavers"].any()
        assert not decoder.exchange.any()
        runs.append(logits[: len(positions)].copy())
    np.testing.assert_array_equal(*runs)
    for row, position in enumerate(positions):
        used[arrays.block_table[row, position // page_size], position % page_size] = True
    for index, cache in enumerate(caches):
        for got, reference in zip(model.values(index), cache, strict=True):
            cells, expected_cells = (x.swapaxes(1, 2) for x in (got, reference))
            assert_close(cells[used], expected_cells[used], 3e-2 if scales == HALVES else 1 / 8)
            assert np.isnan(cells[~used]).all()
