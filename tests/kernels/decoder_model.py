"""A dense model with random weights, and a step of it made of the ops' CPU references."""

from __future__ import annotations

import numpy as np
from attention_step import FP8_NAN, HALVES
from emulation import EPS
from halves import NAN, Halves, floats, random
from reference_ops import NO_GROWTH, SILU, Floats, StepData, call, rope_table
from weights import weights

from gpu_backend.models.fp8 import from_fp8, to_fp8
from gpu_backend.models.quantization import Form

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
        form: Form | None = None,
    ):
        self.hidden, self.heads, self.kv_heads, self.head_dim = hidden, heads, kv_heads, head_dim
        self.intermediate, self.form = intermediate, form
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
            arrays.call("rope", qkv, None, *norms, EPS, self.rope, *cache, *scales, *sizes, *NO_GROWTH)
            attention = np.zeros((tokens, self.heads * self.head_dim), np.float32)
            arrays.call("attention", qkv, *cache, attention, *sizes[:3], 0, None, tokens)
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
