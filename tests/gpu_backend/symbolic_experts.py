"""Mixtures of experts in a step on expressions."""

from __future__ import annotations

from typing import Any

from symbolic_elementwise import SymbolicElementwise
from symbolic_matmul import SymbolicMatMul
from symbolic_operands import FP32_BYTES, HALF_BYTES, ZERO, Buffer, Product
from symbolic_plan import Expression

from gpu_backend.arithmetic import ceil_div
from gpu_backend.kernel_abi.fp8 import SCALE_BLOCK
from gpu_backend.models.quantization import Form, ScaleForm
from gpu_backend.ops.moe_one import SINGLE_EXPERTS, SUM_PLACES
from gpu_backend.ops.moe_stream import FEW_TOKENS
from gpu_backend.ops.moe_tiled import GROUPED_CODES_UNIT, GROUPED_FP8_UNIT, GROUPED_UNIT, UNIT_BYTES
from gpu_backend.ops.operations import Epilogue


class SymbolicExperts(SymbolicMatMul, SymbolicElementwise):
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
            bias,
        ) = rest
        self._rmsnorm(tokens, residual, norm, eps, normed, hidden)
        self._multiply(Product(weight, normed, logits, tokens, hidden, count, Epilogue.STORE_FP32))
        if bias:
            self._bias(logits, bias)
        if tokens > FEW_TOKENS:
            self._route(0, step_set, logits, choice)

    def _bias(self, logits: str, bias: int) -> None:
        of_tokens = self._at(logits)
        for token in range(self._shape.tokens):
            of_tokens[token] = ("add", of_tokens[token], self._weights[bias])

    def _route_biased(self, _: int, step_set: Any, logits: str, bias: int, choice: str, *rest: int) -> None:
        """The logits stay as they are."""
        for token in range(self._shape.tokens):
            self._at(choice)[token] = ("choice", ("add", self._at(logits)[token], self._weights[bias]))

    def _route(self, _: int, step_set: Any, logits: str, choice: str, *rest: int) -> None:
        for token in range(self._shape.tokens):
            self._at(choice)[token] = ("choice", self._at(logits)[token])

    def _pairs(self, address: int, element: int) -> Buffer:
        """A buffer of a row for each token and expert that it has."""
        experts = self.config.experts
        assert experts is not None
        return self._at(address, self._shape.tokens * experts.per_token, element)

    def _expert_products(
        self, weight: int, x: Buffer | list[Expression], chooses: bool = False, bias: int = 0
    ) -> list[Expression]:
        """A token's of all its experts."""
        self._pairs("expert_choice", 4)
        self._pairs("expert_weight", FP32_BYTES)
        if chooses:
            self._route(0, None, "router_logits", "expert_choice")
        name, choice = self._named(weight), self._at("expert_choice")
        own = self._weights.get(bias)
        return [("experts' silu", name, own, x[token], choice[token]) for token in range(self._shape.tokens)]

    def _expert_gate_up(
        self, weight: int, x: Buffer | list[Expression], chooses: bool = False, bias: int = 0
    ) -> None:
        experts = self.config.experts
        assert experts is not None
        self._pairs("expert_product", HALF_BYTES * experts.intermediate)
        for token, product in enumerate(self._expert_products(weight, x, chooses, bias)):
            self._at("expert_product")[token] = product

    def _expert_plan(
        self, _: int, choice: str, plan: str, pairs: str, tokens: int, count: int, per_token: int, unit: int
    ) -> None:
        units = tokens * per_token // unit + min(count, tokens * per_token)
        form = self._form()
        of_form = GROUPED_FP8_UNIT if isinstance(form, ScaleForm) else GROUPED_CODES_UNIT
        assert (tokens, unit) == (self._shape.tokens, of_form if form else GROUPED_UNIT)
        self._at(plan, 1 + units, UNIT_BYTES)
        self._pairs(pairs, 4)

    def _form(self) -> Form | None:
        """Of the experts' matrices."""
        return next((layer.down.scales for layer in self.config.layers if layer.router), None)

    def _moe_gemv_gate_up(
        self, _: int, routing: Any, weight: int, x: str, out: str, *rest: int, chooses: bool = False
    ) -> None:
        self._expert_gate_up(weight, self._at(x), chooses, rest[-1])

    def _moe_grouped_gemm_gate_up(
        self, _: int, plan: str, pairs: str, weight: int, x: str, *rest: int
    ) -> None:
        self._expert_gate_up(weight, self._at(x), bias=rest[-1])

    def _moe_grouped_codes_gemm_gate_up(
        self, _: int, plan: str, pairs: str, weight: int, codes: int, x: str, *rest: int
    ) -> None:
        assert weight == codes, "the scales are another matrix's"
        self._expert_gate_up(weight, self._at(x), bias=rest[-1])

    def _expert_down(self, weight: int, x: Buffer | list[Expression], out: str) -> None:
        to = self._pairs(out, HALF_BYTES * self.config.hidden)
        for token in range(self._shape.tokens):
            to[token] = ("experts' down", self._named(weight), x[token])

    def _moe_gemv_down(self, _: int, routing: Any, weight: int, x: str, out: str, *rest: int) -> None:
        self._expert_down(weight, self._at(x), out)

    def _moe_grouped_gemm_down(
        self, _: int, plan: str, pairs: str, weight: int, x: str, out: str, *rest: int
    ) -> None:
        self._expert_down(weight, self._at(x), out)

    def _moe_grouped_codes_gemm_down(
        self, _: int, plan: str, pairs: str, weight: int, codes: int, x: str, out: str, *rest: int
    ) -> None:
        assert weight == codes, "the scales are another matrix's"
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
        *sizes, router_bias, bias = rest[1:]
        assert experts is not None
        assert (count, renormalise) == (experts.count, experts.renormalise)
        assert sizes == [hidden, experts.intermediate, experts.per_token]
        assert experts.per_token <= SINGLE_EXPERTS
        self._rmsnorm(1, residual, norm, eps, "normed", hidden)
        if router_bias:
            self._route_biased(1, None, sums, router_bias, choice)
        else:
            self._route(1, None, sums, choice)
        self._expert_gate_up(weight, self._at("normed"), bias=bias)

    _moe_single_codes_gate_up = _moe_single_token_gate_up

    def _moe_single_token_down(
        self, _: int, choice: str, weights: str, sums: str, n_sums: int, down: int, x: str, out: str,
        *rest: int,
    ) -> None:  # fmt: skip
        experts, hidden = self.config.experts, self.config.hidden
        assert experts is not None
        assert n_sums == SUM_PLACES * experts.count
        assert rest[:-1] == (experts.intermediate, hidden, experts.per_token)
        self._at(sums, n_sums, 8)[0] = ZERO
        rows = "expert_rows"
        self._moe_gemv_down(0, None, down, x, rows)
        self._moe_combine(1, rows, choice, weights, out, hidden, experts.per_token, rest[-1])

    _moe_single_codes_down = _moe_single_token_down

    def _moe_combine(
        self, rows: int, x: str, choice: str, weights: str, out: str, hidden: int, per_token: int, bias: int
    ) -> None:
        to, own = self._at(out, rows, FP32_BYTES * hidden), self._weights.get(bias)
        for row in range(rows):
            to[row] = ("add", to[row], ("sum", self._at(x)[row], own, self._at(choice)[row]))

    def _moe_combine_rmsnorm(
        self, rows: int, x: str, choice: str, weights: str, out: str, norm: int, eps: float, normed: str,
        hidden: int, per_token: int, bias: int, adds: int,
    ) -> None:  # fmt: skip
        self._moe_combine(rows, x, choice, weights, out, hidden, per_token, bias)
        if adds:
            self._rmsnorm_adding(rows, out, norm, eps, normed, hidden, adds)
        else:
            self._rmsnorm(rows, out, norm, eps, normed, hidden)
