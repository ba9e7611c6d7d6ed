"""Attention of a step on expressions, and its RoPE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from symbolic_machine import SymbolicMachine
from symbolic_operands import CACHE_MAPS, CHIP, FP32_BYTES, HALF_BYTES, KV_CACHE
from symbolic_plan import Expression

from gpu_backend.abi import StepKind
from gpu_backend.engines.native.step import decoding_slots
from gpu_backend.kernel_abi.flash_accumulators_sm90 import FLASH_KEYS
from gpu_backend.kernel_abi.flash_parts_sm90 import FLASH_PART_WORDS, FLASH_WARPS
from gpu_backend.ops.attention import DecodePlan, Heads
from gpu_backend.ops.decode_attention import KV_SPLIT_BYTES, KvSplitLimits, kv_split_limits, sharing_rows
from gpu_backend.ops.prefill_attention import UNIT_BYTES


class SymbolicAttention(SymbolicMachine):
    _appended: tuple[int, list[Expression]] | None = None  # a layer, and the keys of its rows

    def _decoding(self) -> tuple[int, KvSplitLimits]:
        """The batch slots that sequences that decode may have, and how their attention is cut up."""
        batch_slots = decoding_slots(self._shape, self._limits.max_batch)
        heads = Heads(self.config.n_heads, self.config.n_kv_heads, self.config.head_dim)
        mixed, reach = self._shape.kind == StepKind.MIXED, self.model.weights.reaches[0]
        plan = DecodePlan(batch_slots, mixed, heads, reach, self._shape.verifies)
        return batch_slots, kv_split_limits(plan, heads, self.model.target)

    def _layer_of(self, keys: int, values: int) -> int:
        size = self.model.cache.layer_bytes
        assert values == keys + size
        assert (keys - KV_CACHE) % (2 * size) == 0
        return (keys - KV_CACHE) // (2 * size)

    def _attention_plan(
        self,
        blocks: int,
        step_set: Any,
        cut: bytes,
        plan: str,
        rope: int,
        turns: str,
        head_dim: int,
        window: int,
        most_sharing: int,
    ) -> None:
        assert head_dim == self.config.head_dim
        heads = Heads(self.config.n_heads, self.config.n_kv_heads, head_dim)
        assert most_sharing == (sharing_rows(heads) if self._shape.verifies else 1)
        self._at(plan)[0] = ("plan", window)
        self._at(turns)[0] = ("turns", self._weights[rope])
        batch_slots, sized = self._decoding()
        assert cut == sized.words
        self._at(plan).check(KV_SPLIT_BYTES * (1 + max(batch_slots * sized.most, CHIP.multiprocessors - 1)))
        self._at(turns, batch_slots, FP32_BYTES * head_dim)

    def _decode_attention(
        self, blocks: int, tables: Any, plan: str, turns: str, cache: int, *rest: Any
    ) -> None:
        qkv, q_norm, k_norm, _, keys, values, partial, out, n_kv_heads, ratio, most, bias, window, *rest = (
            rest
        )
        scales, growth, sinks = rest[:2], rest[2:4], rest[4]
        config, (batch_slots, cut) = self.config, self._decoding()
        layer = self._layer_of(keys, values)
        self._check_growth(layer, growth)
        self._check_scales(layer, scales)
        assert blocks == CHIP.multiprocessors - 1, "E22: a multiprocessor each"
        assert cache == CACHE_MAPS + 128 * layer
        assert (n_kv_heads, ratio, most) == (config.n_kv_heads, config.n_heads // config.n_kv_heads, cut.most)
        assert self._at(plan)[0] == ("plan", window), "the plan is for other keys"
        kind, rope = self._at(turns)[0]
        assert kind == "turns"
        self._at(partial, batch_slots * most * config.n_heads, FP32_BYTES * (config.head_dim + 4))
        if self._shape.verifies:
            rows = [self._at(qkv)[token] for token in range(self._load.decoding)]
            keys = [self._turned(0, k_norm, bias, rope, layer, row) for row in rows]
            assert self._appended == (layer, keys), "a row attends to keys of this step"
        self._appended = None
        for token in range(self._load.decoding):
            turned = self._turned(q_norm, k_norm, bias, rope, layer, self._at(qkv)[token])
            self._at(out)[token] = ("attention", layer, window, self._weights.get(sinks), turned)

    def _append_kv(
        self, blocks: int, step_set: Any, tables: Any, turns: str, qkv: str, k_norm: int, eps: float,
        keys: int, values: int, heads: int, kv_heads: int, bias: int, *scales: float,
    ) -> None:  # fmt: skip
        """In front of the attention of a step in which a sequence has several rows, and of no other."""
        assert self._shape.verifies
        assert (heads, kv_heads, eps) == (self.config.n_heads, self.config.n_kv_heads, self.config.norm_eps)
        assert blocks >= self._load.decoding
        layer, (kind, rope) = self._layer_of(keys, values), self._at(turns)[0]
        assert kind == "turns"
        self._check_scales(layer, scales)
        rows = [self._at(qkv)[token] for token in range(self._load.decoding)]
        self._appended = layer, [self._turned(0, k_norm, bias, rope, layer, row) for row in rows]

    def _check_growth(self, layer: int, growth: Sequence[float]) -> None:
        reach = self.model.weights.layers[layer].reach
        assert tuple(growth) == reach.growth_operands

    def _turned(
        self, q_norm: int, k_norm: int, bias: int, rope: str, layer: int, qkv: Expression
    ) -> Expression:
        named = [self._weights.get(address) for address in (q_norm, k_norm, bias)]
        return ("rope", *named, rope, layer, qkv)

    def _rope(self, rows: int, step_set: Any, tables: Any, qkv: str, *rest: Any) -> None:
        q_norm, k_norm, _, rope, keys, values, heads, kv_heads, bias, *scales, decodes, beta, context = rest
        self._check_growth(self._layer_of(keys, values), (beta, context))
        assert (heads, kv_heads) == (self.config.n_heads, self.config.n_kv_heads)
        x = self._at(qkv, rows, HALF_BYTES * self.config.qkv_width)
        self._check_scales(self._layer_of(keys, values), scales)
        for token in self._tokens(decodes):
            layer = self._layer_of(keys, values)
            x[token] = self._turned(q_norm, k_norm, bias, self._weights[rope], layer, x[token])

    def _prefill_plan(
        self, blocks: int, step_set: Any, plan: str, unit_tokens: int, part_keys: int, most_parts: int
    ) -> None:
        units = self._shape.tokens // unit_tokens + self._shape.batch_slots
        self._at(plan, 1 + units * most_parts, UNIT_BYTES)[0] = (
            "prefill plan",
            128 // unit_tokens,
            most_parts,
        )
        assert most_parts == 1 or part_keys >= 3 * FLASH_KEYS, "every row sees keys of every part"

    def _flash_attention(
        self, blocks: int, queries: str, fresh: str, cache: int, tables: Any, plan: str, out: str,
        keys: int, values: int, heads: int, kv_heads: int, pack: int, after_decode: int,
        k_scale: float, v_scale: float, parts: str, arrivals: str, most_parts: int, sinks: int,
    ) -> None:  # fmt: skip
        atom = 8 * self.model.cache.row_bytes
        assert cache == KV_CACHE
        assert fresh == queries, "this step's keys and values lie beside the queries"
        assert self._at(plan)[0] == ("prefill plan", pack, most_parts), "the plan is for other units"
        if most_parts > 1:
            tokens = self._shape.tokens
            row_bytes = FP32_BYTES * (self.config.head_dim + FLASH_PART_WORDS)
            self._at(parts, tokens * heads * most_parts, row_bytes)
            self._at(arrivals, tokens * (heads // pack), FP32_BYTES * FLASH_WARPS)
        places = KV_CACHE + keys * atom, KV_CACHE + values * atom
        self._check_scales(self._layer_of(*places), (k_scale, v_scale))
        self._attend(self._tokens(0), queries, out, *places, window=0, sinks=sinks)

    def _prefill_attention(
        self, blocks: int, step_set: Any, tables: Any, qkv: str, keys: int, values: int, out: str,
        heads: int, kv_heads: int, tokens: int, window: int, k_scale: float, v_scale: float, decodes: int,
        sinks: int,
    ) -> None:  # fmt: skip
        self._check_scales(self._layer_of(keys, values), (k_scale, v_scale))
        assert (heads, kv_heads) == (self.config.n_heads, self.config.n_kv_heads)
        assert tokens >= (self._load.decoding if decodes else self._load.tokens)
        self._attend(self._tokens(decodes), qkv, out, keys, values, window, sinks)

    def _check_scales(self, layer: int, scales: Sequence[float]) -> None:
        own = self.model.weights.layers[layer].kv_scales
        assert tuple(scales) == (own.key, own.value), "the scales of another layer"

    def _tokens(self, decodes: int) -> range:
        """Those of sequences that decode, or of prompts."""
        return range(self._load.decoding) if decodes else range(self._load.decoding, self._load.tokens)

    def _attend(
        self, tokens: range, qkv: str, out: str, keys: int, values: int, window: int, sinks: int
    ) -> None:
        to = self._at(out, self._shape.tokens, HALF_BYTES * self.config.attention_width)
        for token in tokens:
            x, own = self._at(qkv)[token], self._weights.get(sinks)
            to[token] = ("attention", self._layer_of(keys, values), window, own, x)
