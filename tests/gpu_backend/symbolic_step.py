"""A step of the CUDA engine on expressions (symbolic_machine.py): attention, experts, a model's logits."""

from __future__ import annotations

import struct
from typing import Any

from symbolic_machine import (
    CACHE_MAPS,
    KV_CACHE,
    MULTIPROCESSORS,
    ZERO,
    Buffer,
    Expression,
    Load,
    OwnProduct,
    SymbolicMachine,
)

from gpu_backend.abi import StepKind
from gpu_backend.cuda.product import FP32_BYTES, HALF_BYTES, Product
from gpu_backend.engine import native_mixture
from gpu_backend.engine.base import Limits, Shape
from gpu_backend.engine.sizing import PIECE_RECORD, SUM_PLACES, TILE_UNIT, UNIT_BYTES, layer_cache_bytes


class SymbolicStep(SymbolicMachine):
    def expected(self, token: int) -> Expression:
        """The logits that the model has of a token of the last step."""
        x: Expression = ("embed", self._id, token)
        for i in range(self.config.n_layers):
            qkv = ("times", f"qkv{i}", ("norm", f"input_norm{i}", x))
            attention = ("attention", i, ("rope", f"q_norm{i}", f"k_norm{i}", i, qkv))
            x = ("add", x, ("times", f"o{i}", attention))
            normed = ("norm", f"post_norm{i}", x)
            if self.config.has_experts(i):
                choice = ("choice", ("times", f"router{i}", normed))
                product = ("experts' silu", f"gate_up{i}", normed, choice)
                x = ("add", x, ("sum", ("experts' down", f"down{i}", product), choice))
            else:
                x = ("add", x, ("times", f"down{i}", ("silu", ("times", f"gate_up{i}", normed))))
        return ("times", "head", ("norm", "final_norm", x))

    # Attention.

    def _layer_of(self, keys: int, values: int) -> int:
        size = layer_cache_bytes(self.config, self._limits)
        assert values == keys + size
        assert (keys - KV_CACHE) % (2 * size) == 0
        return (keys - KV_CACHE) // (2 * size)

    def _attention_plan(
        self, blocks: int, step_set: bytes, cut: bytes, plan: int, rope: int, turns: int, head_dim: int,
        window: int,
    ) -> None:  # fmt: skip
        assert self._weights[rope] == "rope"
        assert window == 0
        assert head_dim == self.config.head_dim
        lanes, sized = self._step._decoding(self._shape)
        assert cut == sized.words
        self._at(plan).check(PIECE_RECORD * (1 + max(lanes * sized.most, MULTIPROCESSORS - 1)))
        self._at(turns, lanes, FP32_BYTES * head_dim)

    def _attention_stream(
        self, blocks: int, tables: bytes, plan: int, turns: int, cache: int, *rest: Any
    ) -> None:
        qkv, q_norm, k_norm, _, keys, values, partial, out, n_kv_heads, ratio, most, bias, window = rest
        config, (lanes, cut) = self.config, self._step._decoding(self._shape)
        layer = self._layer_of(keys, values)
        assert (bias, window) == (0, 0)
        assert blocks == MULTIPROCESSORS - 1, "E22: a multiprocessor each"
        assert cache == CACHE_MAPS + 128 * layer
        assert (n_kv_heads, ratio, most) == (config.n_kv_heads, config.n_heads // config.n_kv_heads, cut.most)
        self._at(partial, lanes * most * config.n_heads, FP32_BYTES * (config.head_dim + 4))
        for token in range(self._load.decoding):
            turned = self._turned(q_norm, k_norm, layer, self._at(qkv)[token])
            self._at(out)[token] = ("attention", layer, turned)

    def _turned(self, q_norm: int, k_norm: int, layer: int, qkv: Expression) -> Expression:
        return ("rope", self._weights[q_norm], self._weights[k_norm], layer, qkv)

    def _rope(self, rows: int, step_set: bytes, tables: bytes, qkv: int, *rest: Any) -> None:
        q_norm, k_norm, _, rope, keys, values, heads, kv_heads, bias = rest
        assert (heads, kv_heads) == (self.config.n_heads, self.config.n_kv_heads)
        assert self._weights[rope] == "rope"
        assert bias == 0
        x = self._at(qkv, rows, HALF_BYTES * self.config.qkv_width)
        for token in range(self._load.decoding, self._load.tokens):
            x[token] = self._turned(q_norm, k_norm, self._layer_of(keys, values), x[token])

    def _attention_flash(
        self, blocks: int, queries: int, cache: int, tables: bytes, plan: int, out: int,
        keys: int, values: int, *counts: int,
    ) -> None:  # fmt: skip
        atom = 8 * HALF_BYTES * self.config.head_dim
        assert cache == KV_CACHE
        self._attend_prompts(queries, out, KV_CACHE + keys * atom, KV_CACHE + values * atom)

    def _attention_prefill(
        self, blocks: int, step_set: bytes, tables: bytes, qkv: int, keys: int, values: int, out: int,
        heads: int, kv_heads: int, tokens: int, window: int,
    ) -> None:  # fmt: skip
        assert window == 0
        assert (heads, kv_heads) == (self.config.n_heads, self.config.n_kv_heads)
        self._attend_prompts(qkv, out, keys, values)

    def _attend_prompts(self, qkv: int, out: int, keys: int, values: int) -> None:
        to = self._at(out, self._shape.tokens, HALF_BYTES * self.config.attention_width)
        for token in range(self._load.decoding, self._load.tokens):
            to[token] = ("attention", self._layer_of(keys, values), self._at(qkv)[token])

    # Mixtures of experts.

    def _router(self, _: int, step_set: bytes, residual: int, norm: int, eps: float, *rest: int) -> None:
        (
            weight,
            normed,
            logits,
            choice,
            _weights,
            _arrivals,
            tokens,
            hidden,
            count,
            _per_token,
            _renormalise,
        ) = rest
        self._rmsnorm(tokens, residual, norm, eps, normed, hidden)
        self._multiply(OwnProduct(Product(weight, normed, logits, tokens, hidden, count, "float")))
        if tokens > native_mixture.FEW_TOKENS:
            self._route(0, step_set, logits, choice)

    def _route(self, _: int, step_set: bytes, logits: int, choice: int, *rest: int) -> None:
        for token in range(self._shape.tokens):
            self._at(choice)[token] = ("choice", self._at(logits)[token])

    def _pairs(self, address: int, element: int) -> Buffer:
        """A buffer of a row for each token and expert that it has."""
        experts = self.config.experts
        assert experts is not None
        return self._at(address, self._shape.tokens * experts.per_token, element)

    def _expert_gate_up(self, weight: int, x: int, chooses: bool = False) -> None:
        act, experts = self._act, self.config.experts
        assert experts is not None
        self._pairs(act.expert_choice, 4)
        self._pairs(act.expert_weight, FP32_BYTES)
        self._pairs(act.expert_product, HALF_BYTES * experts.intermediate)
        if chooses:
            self._route(0, b"", act.router_logits, act.expert_choice)
        for token in range(self._shape.tokens):
            choice = self._at(act.expert_choice)[token]
            product = ("experts' silu", self._weights[weight], self._at(x)[token], choice)
            self._at(act.expert_product)[token] = product

    def _expert_plan(
        self, _: int, choice: int, plan: int, pairs: int, tokens: int, count: int, per_token: int, unit: int
    ) -> None:
        units = tokens * per_token // TILE_UNIT + min(count, tokens * per_token)
        assert (tokens, unit) == (self._shape.tokens, TILE_UNIT)
        self._at(plan, 1 + units, UNIT_BYTES)
        self._pairs(pairs, 4)

    def _expert_tiled_gate_up(self, _: int, plan: int, pairs: int, weight: int, x: int, *rest: int) -> None:
        self._expert_gate_up(weight, x)

    def _expert_stream_down(self, _: int, routing: bytes, weight: int, x: int, out: int, *rest: int) -> None:
        to = self._pairs(out, HALF_BYTES * self.config.hidden)
        for token in range(self._shape.tokens):
            to[token] = ("experts' down", self._weights[weight], self._at(x)[token])

    def _expert_tiled_down(
        self, _: int, plan: int, pairs: int, weight: int, x: int, out: int, *rest: int
    ) -> None:
        self._expert_stream_down(0, b"", weight, x, out)

    def _expert_gate_up_one(
        self, _: int, routing: bytes, residual: int, norm: int, eps: float, weight: int, *rest: int
    ) -> None:
        sums, choice, _weights, count, renormalise = struct.unpack_from("<3Q2I", routing, len(b"set"))
        act, hidden, experts = self._act, self.config.hidden, self.config.experts
        assert experts is not None
        assert (count, renormalise) == (experts.count, experts.renormalise)
        assert rest[1:] == (hidden, experts.intermediate, experts.per_token)
        assert experts.intermediate % native_mixture.ONE_SLICE == 0
        assert experts.per_token <= native_mixture.ONE_EXPERTS
        self._rmsnorm(1, residual, norm, eps, act.normed, hidden)
        self._at(choice)[0] = ("choice", self._at(sums)[0])
        self._expert_gate_up(weight, act.normed)

    def _expert_down_one(
        self, _: int, choice: int, weights: int, sums: int, n_sums: int, down: int, x: int, out: int,
        *rest: int,
    ) -> None:  # fmt: skip
        assert self.config.experts is not None
        assert n_sums == SUM_PLACES * self.config.experts.count
        self._at(sums, n_sums, 8)[0] = ZERO
        rows = self._act.expert_rows
        self._expert_stream_down(0, b"", down, x, rows)
        self._expert_sum(1, rows, choice, weights, out, self.config.hidden)

    def _expert_sum(self, rows: int, x: int, choice: int, weights: int, out: int, *rest: int) -> None:
        to = self._at(out, rows, FP32_BYTES * self.config.hidden)
        for row in range(rows):
            to[row] = ("add", to[row], ("sum", self._at(x)[row], self._at(choice)[row]))

    def _expert_sum_rmsnorm(
        self, rows: int, x: int, choice: int, weights: int, out: int, norm: int, eps: float, normed: int,
        hidden: int, per_token: int,
    ) -> None:  # fmt: skip
        self._expert_sum(rows, x, choice, weights, out)
        self._rmsnorm(rows, out, norm, eps, normed, hidden)


def loads(shape: Shape, limits: Limits) -> list[Load]:
    """As full as `shape` allows, and as empty."""
    if shape.kind == StepKind.DECODE:
        return [Load(n, n, tuple(range(n))) for n in {shape.tokens, max(1, shape.tokens - 1)}]
    out = []
    for full in (True, False):
        prompts = min(limits.max_prefill_lanes, shape.lanes, shape.tokens) if full else 1
        most = min(limits.max_batch, shape.lanes - prompts, shape.tokens - prompts)
        decoding = 0 if shape.kind == StepKind.PREFILL else most if full else 1
        tokens = shape.tokens if full else decoding + 1
        ends = [decoding + (i + 1) * (tokens - decoding) // prompts - 1 for i in range(prompts)]
        out.append(Load(tokens, decoding, (*range(decoding), *ends)))
    return out
