"""The products of a step on expressions."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

from symbolic_machine import SymbolicMachine
from symbolic_operands import ELEMENT, FP32_BYTES, HALF_BYTES, NO_ROUTER, ZERO, Product, SplitNorm
from symbolic_plan import Expression

from gpu_backend.element import Element
from gpu_backend.ops.launch import LibraryGemm
from gpu_backend.ops.moe_one import SUM_PLACES
from gpu_backend.ops.operations import Epilogue

NORM_FIELDS, CODE_FIELDS = 6, 3  # of FusedNorm, and of CodeMatrix


class SymbolicMatMul(SymbolicMachine):
    """A norm may be divided between two products (E19), and weights and rows be in fp8."""

    def _library(self, gemm: LibraryGemm) -> None:
        fp32 = gemm.out.element is Element.FP32
        epilogue = Epilogue.ADD if gemm.adds else Epilogue.STORE_FP32 if fp32 else Epilogue.STORE
        sizes = (gemm.x.rows, gemm.x.columns, gemm.out.columns)
        weight = self._argument(gemm.weight)
        self._multiply(Product(weight, gemm.x.name, gemm.out.name, *sizes, epilogue))

    def _multiply(self, product: Product, norm: SplitNorm | None = None) -> None:
        x = self._quantized(product) if product.x_scales else self._halves(product)
        out = self._at(product.out, product.rows, ELEMENT[product.epilogue] * product.n_out)
        made = [self._times(product.weight, self._scaled(x[row], row, norm)) for row in range(product.rows)]
        for row, value in enumerate(made):
            if product.epilogue is Epilogue.ADD:
                out[row] = ("add", out[row], value)
            else:
                out[row] = ("silu", value) if product.epilogue is Epilogue.GATED else value
        if norm and norm.weight:
            assert self.model.weights.embed.element is Element.BF16, "E19: in float16 it might overflow"
            sums = self._at(norm.sums_out).check(FP32_BYTES * norm.leaves * norm.columns)
            scaled = self._at(norm.scaled, product.rows, HALF_BYTES * product.n_out)
            for row in range(product.rows):
                scaled[row] = ("without its factor", self._weights[norm.weight], out[row])
                sums[row] = ("sums", norm.leaves, norm.columns, out[row])

    def _halves(self, product: Product) -> list[Expression]:
        x = self._at(product.x, product.rows, HALF_BYTES * product.n_in)
        return [x[row] for row in range(product.rows)]

    def _quantized(self, product: Product) -> list[Expression]:
        """What the rows of x are that have been quantised, each with its own scales in this form."""
        assert product.x_scales
        name, stride = product.x_scales
        x, scales = self._at(product.x, product.rows, product.n_in), self._at(name)
        pairs = [(x[row], scales[row]) for row in range(product.rows)]
        assert all(scale[:2] == ("scales", stride) for _, scale in pairs if scale[0] != "nothing")
        return [of[1] if of == ("fp8", scale[-1]) else ("wrong scales", of) for of, scale in pairs]

    def _times(self, weight: int, x: Expression) -> Expression:
        return ("times", self._named(weight), x)

    def _unpack(self, _: int, weight: int, out: str, rows: int, columns: int) -> None:
        self._at(out, rows, HALF_BYTES * columns)[0] = ("unpacked", self._weights[weight])

    def _scaled(self, x: Expression, row: int, norm: SplitNorm | None) -> Expression:
        """E19: x with the factor of the sums, if they are those of its own row in the same shape."""
        if not norm or not norm.sums_in:
            return x
        assert norm.eps == self.config.norm_eps
        kind, weight, of = x if len(x) == 3 else (None, None, None)
        left = self._at(norm.sums_in)[row] == ("sums", norm.n_sums, norm.columns, of)
        return ("norm", weight, of) if kind == "without its factor" and left else ("wrong factor", x)

    def _wide(self, work: Any, epilogue: Epilogue, columns: int, tiles: int) -> None:
        """SkinnyParams's fields, FusedNorm's, behind which the scales of weights in fp8 stand, or a
        CodeMatrix, and WeightsAhead's, which compute nothing."""
        weight, x, out, cut, factors, (ahead, *_) = map(self._argument, work.operands)
        assert not ahead or ahead in self._weights
        norm, behind = factors[:NORM_FIELDS], factors[NORM_FIELDS:]
        if len(behind) == CODE_FIELDS:
            assert behind[0] == weight
            behind = behind[1:]
        if weight in self._scales_of:
            assert behind[0] == self._scales_of[weight], "the scales are another matrix's"
        rows, n_in, n_out, _, n_tiles, *_ = struct.unpack("<9I", cut)
        ends_step = self._weights[weight] in ("head", "embed")
        rooms = replace(self.model.target, shared_bytes=work.divided).rooms(ends_step)
        assert work.shared_bytes <= (rooms.large if work.cluster <= 2 else rooms.small), "E23"
        split = SplitNorm(*norm, columns, n_tiles * tiles)
        self._multiply(Product(weight, x, out, rows, n_in, n_out, epilogue), split)

    def _tiled(self, work: Any, epilogue: Epilogue) -> None:
        weight, x, out, cut = map(self._argument, work.operands)
        rows, n_in = struct.unpack_from("<2I", cut)
        self._multiply(Product(weight, x, out, rows, n_in, work.operands[2].shape[1], epilogue))

    def _tiled_fp8(self, work: Any, epilogue: Epilogue) -> None:
        weight, x, out, cut, (x_scales, w_scales, stride, n_out, splits, *split) = map(
            self._argument, work.operands
        )
        rows, words = struct.unpack_from("<2I", cut)
        assert w_scales == self._scales_of[weight], "the scales are another matrix's"
        product = Product(weight, x, out, rows, 2 * words, n_out, epilogue, (x_scales, stride))
        if splits == 1:
            self._multiply(product)
            return
        share, part_rows = split
        assert (splits - 1) * share < words <= splits * share
        self._multiply(product)
        parts = self._at(out, splits * part_rows, FP32_BYTES * n_out)
        for row in range(rows):
            parts[row] = ("parts", splits, part_rows, parts[row])

    def _split_sums(
        self, parts: str, out: str, splits: int, part_rows: int, n: int, rows: int, epilogue: Epilogue
    ) -> None:
        to, of = self._at(out, rows, ELEMENT[epilogue] * n), self._at(parts)
        for row in range(rows):
            *cut, value = of[row][1:]
            assert cut == [splits, part_rows]
            to[row] = ("add", to[row], value) if epilogue is Epilogue.ADD else value

    def _resident_gemv(
        self, _: int, weight: int, x: str, norm: int, eps: float, out: str, rows: int, width: int, router: Any
    ) -> None:
        """Stores the product of normed rows, or adds that of what attention puts out."""
        if norm:
            assert router == NO_ROUTER
            residual, to = self._at(x), self._at(out, rows, HALF_BYTES * width)
            for row in range(rows):
                to[row] = self._times(weight, ("norm", self._weights[norm], residual[row]))
            return
        width_in = self.config.attention_width
        self._multiply(Product(weight, x, out, rows, width_in, width, Epilogue.ADD))
        if router == NO_ROUTER:
            return
        router_norm, matrix, places, experts = router
        sums = self._at(places, SUM_PLACES * experts, 8)
        assert self.config.experts is not None
        assert (rows, experts) == (1, self.config.experts.count)
        assert sums[0] in (ZERO, ("nothing", "router_sums", 0)), "they add up to what was there"
        sums[0] = self._times(matrix, ("norm", self._weights[router_norm], self._at(out)[0]))
