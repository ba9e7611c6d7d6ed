"""A step of the CUDA engine on expressions (symbolic_machine.py): attention, experts, a model's logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from symbolic_machine import (
    CACHE_MAPS,
    CHIP,
    FP32_BYTES,
    HALF_BYTES,
    KV_CACHE,
    ZERO,
    Buffer,
    Expression,
    Load,
    Product,
    SymbolicMachine,
)

from gpu_backend.abi import StepKind
from gpu_backend.arithmetic import ceil_div
from gpu_backend.engines.base import Limits, Shape
from gpu_backend.engines.native.step import decoding_slots
from gpu_backend.kernel_abi.fp8 import SCALE_BLOCK
from gpu_backend.ops.decode_attention import KV_SPLIT_BYTES, KvSplitLimits, kv_split_limits
from gpu_backend.ops.moe_one import SINGLE_EXPERTS, SUM_PLACES
from gpu_backend.ops.moe_stream import FEW_TOKENS
from gpu_backend.ops.moe_tiled import GROUPED_FP8_UNIT, GROUPED_UNIT, UNIT_BYTES
from gpu_backend.ops.operations import Epilogue, Heads


class SymbolicStep(SymbolicMachine):
    def expected(self, token: int) -> Expression:
        """The logits that the model has of a token of the last step."""
        x: Expression = ("embed", self._id, token)
        for i in range(self.config.n_layers):
            qkv = ("times", f"qkv{i}", ("norm", f"input_norm{i}", x))
            layer = self.config.layers[i]
            norms = (f"q_norm{i}", f"k_norm{i}") if layer.q_norm else (None, None)
            bias = f"qkv_bias{i}" if layer.qkv_bias else None
            turned = ("rope", *norms, bias, self._rope_name(i), i, qkv)
            attended = ("times", f"o{i}", ("attention", i, layer.window or 0, turned))
            if layer.attention_out_norm:
                attended = ("norm", f"attention_out_norm{i}", attended)
            x = ("add", x, attended)
            normed = ("norm", f"mlp_norm{i}", x)
            if self.config.has_experts(i):
                choice = ("choice", ("times", f"router{i}", normed))
                product = ("experts' silu", f"gate_up{i}", normed, choice)
                x = ("add", x, ("sum", ("experts' down", f"down{i}", product), choice))
            else:
                made = ("times", f"down{i}", ("silu", ("times", f"gate_up{i}", normed)))
                if layer.mlp_out_norm:
                    made = ("norm", f"mlp_out_norm{i}", made)
                x = ("add", x, made)
        return ("times", "head", ("norm", "final_norm", x))

    def _rope_name(self, i: int) -> str:
        """Of the table of layer i, which is the first of those with its rotation and its window."""
        kinds = [(layer.rope, layer.window) for layer in self.config.layers]
        return f"rope{list(dict.fromkeys(kinds)).index(kinds[i])}"

    # Attention.

    def _decoding(self) -> tuple[int, KvSplitLimits]:
        """The batch slots that sequences that decode may have, and how their attention is cut up."""
        batch_slots = decoding_slots(self._shape, self._limits.max_batch)
        heads = Heads(self.config.n_heads, self.config.n_kv_heads, self.config.head_dim)
        return batch_slots, kv_split_limits(
            heads, batch_slots, self.model.target, self._shape.kind == StepKind.MIXED
        )

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
    ) -> None:
        assert head_dim == self.config.head_dim
        self._at(plan)[0] = ("plan", window)
        self._at(turns)[0] = ("turns", self._weights[rope])
        batch_slots, sized = self._decoding()
        assert cut == sized.words
        self._at(plan).check(KV_SPLIT_BYTES * (1 + max(batch_slots * sized.most, CHIP.multiprocessors - 1)))
        self._at(turns, batch_slots, FP32_BYTES * head_dim)

    def _decode_attention(
        self, blocks: int, tables: Any, plan: str, turns: str, cache: int, *rest: Any
    ) -> None:
        qkv, q_norm, k_norm, _, keys, values, partial, out, n_kv_heads, ratio, most, bias, window, *scales = (
            rest
        )
        config, (batch_slots, cut) = self.config, self._decoding()
        layer = self._layer_of(keys, values)
        self._check_scales(layer, scales)
        assert blocks == CHIP.multiprocessors - 1, "E22: a multiprocessor each"
        assert cache == CACHE_MAPS + 128 * layer
        assert (n_kv_heads, ratio, most) == (config.n_kv_heads, config.n_heads // config.n_kv_heads, cut.most)
        assert self._at(plan)[0] == ("plan", window), "the plan is for other keys"
        kind, rope = self._at(turns)[0]
        assert kind == "turns"
        self._at(partial, batch_slots * most * config.n_heads, FP32_BYTES * (config.head_dim + 4))
        for token in range(self._load.decoding):
            turned = self._turned(q_norm, k_norm, bias, rope, layer, self._at(qkv)[token])
            self._at(out)[token] = ("attention", layer, window, turned)

    def _turned(
        self, q_norm: int, k_norm: int, bias: int, rope: str, layer: int, qkv: Expression
    ) -> Expression:
        named = [self._weights.get(address) for address in (q_norm, k_norm, bias)]
        return ("rope", *named, rope, layer, qkv)

    def _rope(self, rows: int, step_set: Any, tables: Any, qkv: str, *rest: Any) -> None:
        q_norm, k_norm, _, rope, keys, values, heads, kv_heads, bias, *scales, decodes = rest
        assert (heads, kv_heads) == (self.config.n_heads, self.config.n_kv_heads)
        x = self._at(qkv, rows, HALF_BYTES * self.config.qkv_width)
        self._check_scales(self._layer_of(keys, values), scales)
        for token in self._tokens(decodes):
            layer = self._layer_of(keys, values)
            x[token] = self._turned(q_norm, k_norm, bias, self._weights[rope], layer, x[token])

    def _flash_attention(
        self, blocks: int, queries: str, fresh: str, cache: int, tables: Any, plan: str, out: str,
        keys: int, values: int, heads: int, kv_heads: int, pack: int, after_decode: int, *scales: float,
    ) -> None:  # fmt: skip
        atom = 8 * self.model.cache.row_bytes
        assert cache == KV_CACHE
        assert fresh == queries, "this step's keys and values lie beside the queries"
        places = KV_CACHE + keys * atom, KV_CACHE + values * atom
        self._check_scales(self._layer_of(*places), scales)
        self._attend(self._tokens(0), queries, out, *places, window=0)

    def _prefill_attention(
        self, blocks: int, step_set: Any, tables: Any, qkv: str, keys: int, values: int, out: str,
        heads: int, kv_heads: int, tokens: int, window: int, k_scale: float, v_scale: float, decodes: int,
    ) -> None:  # fmt: skip
        self._check_scales(self._layer_of(keys, values), (k_scale, v_scale))
        assert (heads, kv_heads) == (self.config.n_heads, self.config.n_kv_heads)
        assert tokens >= (self._load.decoding if decodes else self._load.tokens)
        self._attend(self._tokens(decodes), qkv, out, keys, values, window)

    def _check_scales(self, layer: int, scales: Sequence[float]) -> None:
        own = self.model.weights.layers[layer].kv_scales
        assert tuple(scales) == (own.key, own.value), "the scales of another layer"

    def _tokens(self, decodes: int) -> range:
        """Those of sequences that decode, or of prompts."""
        return range(self._load.decoding) if decodes else range(self._load.decoding, self._load.tokens)

    def _attend(self, tokens: range, qkv: str, out: str, keys: int, values: int, window: int) -> None:
        to = self._at(out, self._shape.tokens, HALF_BYTES * self.config.attention_width)
        for token in tokens:
            to[token] = ("attention", self._layer_of(keys, values), window, self._at(qkv)[token])

    # Mixtures of experts.

    def _router(self, _: int, step_set: Any, residual: str, norm: int, eps: float, *rest: int) -> None:
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
        self._multiply(Product(weight, normed, logits, tokens, hidden, count, Epilogue.STORE_FP32))
        if tokens > FEW_TOKENS:
            self._route(0, step_set, logits, choice)

    def _route(self, _: int, step_set: Any, logits: str, choice: str, *rest: int) -> None:
        for token in range(self._shape.tokens):
            self._at(choice)[token] = ("choice", self._at(logits)[token])

    def _pairs(self, address: int, element: int) -> Buffer:
        """A buffer of a row for each token and expert that it has."""
        experts = self.config.experts
        assert experts is not None
        return self._at(address, self._shape.tokens * experts.per_token, element)

    def _expert_products(
        self, weight: int, x: Buffer | list[Expression], chooses: bool = False
    ) -> list[Expression]:
        """A token's of all its experts."""
        self._pairs("expert_choice", 4)
        self._pairs("expert_weight", FP32_BYTES)
        if chooses:
            self._route(0, None, "router_logits", "expert_choice")
        name, choice = self._weights[weight], self._at("expert_choice")
        return [("experts' silu", name, x[token], choice[token]) for token in range(self._shape.tokens)]

    def _expert_gate_up(self, weight: int, x: Buffer | list[Expression], chooses: bool = False) -> None:
        experts = self.config.experts
        assert experts is not None
        self._pairs("expert_product", HALF_BYTES * experts.intermediate)
        for token, product in enumerate(self._expert_products(weight, x, chooses)):
            self._at("expert_product")[token] = product

    def _expert_plan(
        self, _: int, choice: str, plan: str, pairs: str, tokens: int, count: int, per_token: int, unit: int
    ) -> None:
        units = tokens * per_token // unit + min(count, tokens * per_token)
        assert (tokens, unit) == (
            self._shape.tokens,
            GROUPED_FP8_UNIT if self.config.scale_forms else GROUPED_UNIT,
        )
        self._at(plan, 1 + units, UNIT_BYTES)
        self._pairs(pairs, 4)

    def _moe_gemv_gate_up(
        self, _: int, routing: Any, weight: int, x: str, out: str, *rest: int, chooses: bool = False
    ) -> None:
        self._expert_gate_up(weight, self._at(x), chooses)

    def _moe_grouped_gemm_gate_up(
        self, _: int, plan: str, pairs: str, weight: int, x: str, *rest: int
    ) -> None:
        self._expert_gate_up(weight, self._at(x))

    def _expert_down(self, weight: int, x: Buffer | list[Expression], out: str) -> None:
        to = self._pairs(out, HALF_BYTES * self.config.hidden)
        for token in range(self._shape.tokens):
            to[token] = ("experts' down", self._weights[weight], x[token])

    def _moe_gemv_down(self, _: int, routing: Any, weight: int, x: str, out: str, *rest: int) -> None:
        self._expert_down(weight, self._at(x), out)

    def _moe_grouped_gemm_down(
        self, _: int, plan: str, pairs: str, weight: int, x: str, out: str, *rest: int
    ) -> None:
        self._expert_down(weight, self._at(x), out)

    def _expert_x(self, weight: int, scales: int, x: Any, width: int) -> list[Expression]:
        """What the tokens' rows of x are, which have been quantised; `scales` are those of the weight."""
        assert scales == self._scales_of[weight], "the scales are another matrix's"
        name, *x_scales = x
        rows = self._shape.tokens
        return self._quantized(Product(weight, name, "", rows, width, 0, Epilogue.STORE, tuple(x_scales)))

    def _moe_grouped_fp8_gemm_gate_up(
        self, _: int, plan: str, pairs: str, weight: int, scales: int, x: Any, out: Any, n_in: int,
        n_out: int, per_token: int,
    ) -> None:  # fmt: skip
        elements, product_scales, stride = out
        assert stride == self._shape.tokens * per_token
        self._pairs(elements, n_out)
        self._pairs(product_scales, FP32_BYTES * ceil_div(n_out, SCALE_BLOCK))
        made = self._expert_products(weight, self._expert_x(weight, scales, x, n_in))
        for token, value in enumerate(made):
            self._at(elements)[token] = ("fp8", value)
            self._at(product_scales)[token] = ("scales", stride, value)

    def _moe_grouped_fp8_gemm_down(
        self, _: int, plan: str, pairs: str, weight: int, scales: int, x: Any, out: str, n_in: int,
        n_out: int, per_token: int,
    ) -> None:  # fmt: skip
        self._expert_down(weight, self._expert_x(weight, scales, x, n_in), out)

    def _moe_single_token_gate_up(
        self, _: int, routing: Any, residual: str, norm: int, eps: float, weight: int, *rest: int
    ) -> None:
        sums, choice, _weights, count, renormalise = routing
        hidden, experts = self.config.hidden, self.config.experts
        assert experts is not None
        assert (count, renormalise) == (experts.count, experts.renormalise)
        assert rest[1:] == (hidden, experts.intermediate, experts.per_token)
        assert experts.per_token <= SINGLE_EXPERTS
        self._rmsnorm(1, residual, norm, eps, "normed", hidden)
        self._at(choice)[0] = ("choice", self._at(sums)[0])
        self._expert_gate_up(weight, self._at("normed"))

    def _moe_single_token_down(
        self, _: int, choice: str, weights: str, sums: str, n_sums: int, down: int, x: str, out: str,
        *rest: int,
    ) -> None:  # fmt: skip
        assert self.config.experts is not None
        assert n_sums == SUM_PLACES * self.config.experts.count
        self._at(sums, n_sums, 8)[0] = ZERO
        rows = "expert_rows"
        self._moe_gemv_down(0, None, down, x, rows)
        self._moe_combine(1, rows, choice, weights, out, self.config.hidden)

    def _moe_combine(self, rows: int, x: str, choice: str, weights: str, out: str, *rest: int) -> None:
        to = self._at(out, rows, FP32_BYTES * self.config.hidden)
        for row in range(rows):
            to[row] = ("add", to[row], ("sum", self._at(x)[row], self._at(choice)[row]))

    def _moe_combine_rmsnorm(
        self, rows: int, x: str, choice: str, weights: str, out: str, norm: int, eps: float, normed: str,
        hidden: int, per_token: int,
    ) -> None:  # fmt: skip
        self._moe_combine(rows, x, choice, weights, out)
        self._rmsnorm(rows, out, norm, eps, normed, hidden)


def loads(shape: Shape, limits: Limits) -> list[Load]:
    """As full as `shape` allows, and as empty."""
    if shape.kind == StepKind.DECODE:
        return [Load(n, n, tuple(range(n))) for n in {shape.tokens, max(1, shape.tokens - 1)}]
    out = []
    for full in (True, False):
        prompts = min(limits.max_prefill_slots, shape.batch_slots, shape.tokens) if full else 1
        most = min(limits.max_batch, shape.batch_slots - prompts, shape.tokens - prompts)
        decoding = 0 if shape.kind == StepKind.PREFILL else most if full else 1
        tokens = shape.tokens if full else decoding + 1
        ends = [decoding + (i + 1) * (tokens - decoding) // prompts - 1 for i in range(prompts)]
        out.append(Load(tokens, decoding, (*range(decoding), *ends)))
    return out
