"""What a step on expressions does with each row by itself: embedding, norms, quantisation, gathering."""

from __future__ import annotations

from typing import Any

from symbolic_machine import SymbolicMachine
from symbolic_operands import FP32_BYTES, HALF_BYTES
from symbolic_plan import Expression

from gpu_backend.arithmetic import ceil_div
from gpu_backend.models.quantization import SCALE_BLOCK, ScaleForm
from gpu_backend.ops.quantize import STRIDE_GRAIN


class SymbolicElementwise(SymbolicMachine):
    def _embed(
        self, rows: int, step_set: Any, tables: Any, embed: int, residual: str, hidden: int, scale: float
    ) -> None:
        out = self._at(residual, rows, FP32_BYTES * hidden)
        assert scale == self.config.embed_scale
        assert self._weights[embed] == "embed"
        for token in range(self._load.tokens):
            out[token] = ("embed", self._id, token)

    def _rmsnorm(self, rows: int, residual: str, weight: int, eps: float, normed: str, hidden: int) -> None:
        x = self._at(residual, rows, FP32_BYTES * hidden)
        out = self._at(normed, rows, HALF_BYTES * hidden)
        for row in range(rows):
            out[row] = ("norm", self._weights[weight], x[row])

    def _rmsnorm_adding(
        self, rows: int, residual: str, weight: int, eps: float, normed: str, hidden: int, adds: int
    ) -> None:
        self._rmsnorm(rows, residual, weight, eps, normed, hidden)
        x = self._at(residual)
        for row in range(rows):
            x[row] = ("add", x[row], self._weights[adds])

    def _quantize(self, rows: int, x: str, out: str, scales: str, columns: int, stride: int) -> None:
        values = self._at(x, rows, HALF_BYTES * columns)
        self._leave_in_fp8([values[row] for row in range(rows)], out, scales, columns, stride)

    def _rmsnorm_quantize(
        self, rows: int, residual: str, weight: int, eps: float, out: str, scales: str, hidden: int,
        stride: int,
    ) -> None:  # fmt: skip
        x = self._at(residual, rows, FP32_BYTES * hidden)
        values = [("norm", self._weights[weight], x[row]) for row in range(rows)]
        self._leave_in_fp8(values, out, scales, hidden, stride)

    def _add_rmsnorm_quantize(
        self, rows: int, residual: str, x: str, weight: int, after: int, eps: float, out: str, scales: str,
        hidden: int, stride: int,
    ) -> None:  # fmt: skip
        self._add_rmsnorm(rows, residual, x, weight, 0, eps, "", hidden)
        self._rmsnorm_quantize(rows, residual, after, eps, out, scales, hidden, stride)

    def _leave_in_fp8(
        self, values: list[Expression], out: str, scales: str, columns: int, stride: int
    ) -> None:
        """Scales of `stride` rows side by side: one a row, or by block of columns."""
        rows = len(values)
        assert rows <= stride
        assert stride % STRIDE_GRAIN == 0
        elements, of_rows = self._at(out, rows, columns), self._at(scales, stride, FP32_BYTES)
        if self.config.scale_forms == (ScaleForm.BLOCK,):
            of_rows.check(FP32_BYTES * stride * ceil_div(columns, SCALE_BLOCK))
        for row, value in enumerate(values):
            elements[row], of_rows[row] = ("fp8", value), ("scales", stride, value)

    def _add_rmsnorm(
        self, rows: int, residual: str, x: str, weight: int, after: int, eps: float, normed: str, hidden: int
    ) -> None:
        to = self._at(residual, rows, FP32_BYTES * hidden)
        for row in range(rows):
            to[row] = ("add", to[row], ("norm", self._weights[weight], self._at(x)[row]))
        if after:
            self._rmsnorm(rows, residual, after, eps, normed, hidden)

    def _gather_rmsnorm(
        self, rows: int, step_set: Any, residual: str, weight: int, eps: float, out: str, hidden: int
    ) -> None:
        x, to = self._at(residual), self._at(out, rows, HALF_BYTES * hidden)
        for batch_slot, token in enumerate(self._load.last):
            to[batch_slot] = ("norm", self._weights[weight], x[token])

    def _gather_last(
        self, rows: int, step_set: Any, residual: str, attention: str, to_residual: str, to_attention: str,
        hidden: int, width: int,
    ) -> None:  # fmt: skip
        pairs = [(residual, to_residual, FP32_BYTES * hidden), (attention, to_attention, HALF_BYTES * width)]
        for x, out, row_bytes in pairs:
            for batch_slot, token in enumerate(self._load.last):
                self._at(out, rows, row_bytes)[batch_slot] = self._at(x)[token]

    def _silu_mul(self, rows: int, gate_up: str, product: str, intermediate: int) -> None:
        x = self._at(gate_up, rows, 2 * HALF_BYTES * intermediate)
        out = self._at(product, rows, HALF_BYTES * intermediate)
        for row in range(rows):
            out[row] = ("silu", x[row])
