"""Expressions in place of numbers, for steps of the CUDA engine.

A planned step runs on this machine, whose buffers have the sizes of real ones, and whose kernels say what
they make of rows: ("norm", "input_norm0", ("embed", 7, 3)). A row that this step did not write has the
expression of an earlier step, or none, and so has everything that is made of it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from symbolic_plan import Expression, computed

from gpu_backend.arithmetic import ceil_div
from gpu_backend.cuda.chip import Chip
from gpu_backend.element import Element
from gpu_backend.engines.base import Limits, Shape
from gpu_backend.engines.native.lowering import (
    LowerStep,
    buffer_bytes,
    kernel_names,
    lower_step,
    lowered_steps,
)
from gpu_backend.engines.native.model import (
    DeviceLayer,
    DeviceWeights,
    NativeModel,
    described_weights,
    kv_cache,
    target_of,
)
from gpu_backend.models.description import Model
from gpu_backend.models.quantization import SCALE_BLOCK, ScaleForm
from gpu_backend.ops.candidate import Choice
from gpu_backend.ops.launch import FromStep, LibraryGemm, PlanCall, Struct, Tensor, Work
from gpu_backend.ops.matrix import Buffer as Place
from gpu_backend.ops.matrix import Matrix
from gpu_backend.ops.moe_one import SUM_PLACES
from gpu_backend.ops.operations import NO_KV_SCALES, Epilogue, KvScales, Reach
from gpu_backend.ops.quantize import STRIDE_GRAIN
from gpu_backend.ops.weights import FP8_MATRIX

CHIP = Chip(132)
KV_CACHE, CACHE_MAPS, WEIGHTS = 1 << 50, 1 << 51, 1 << 40
SCALES = 1 << 30  # a matrix's behind it
FP32_BYTES, HALF_BYTES = 4, 2
ELEMENT = {
    Epilogue.STORE: HALF_BYTES, Epilogue.GATED: HALF_BYTES, Epilogue.STORE_FP32: FP32_BYTES,
    Epilogue.ADD: FP32_BYTES,
}  # fmt: skip
ZERO = ("zero",)
NO_ROUTER = (0, 0, 0, 0)


@dataclass(frozen=True)
class Load:
    """What a step has of its capacities: sequences that decode first, then prompts; `last` tokens by batch
    slot."""

    tokens: int
    decoding: int
    last: tuple[int, ...]


@dataclass(frozen=True)
class Product:
    """Of x [rows][n_in], by name, with the weight at an address."""

    weight: int
    x: str
    out: str
    rows: int
    n_in: int
    n_out: int
    epilogue: Epilogue
    x_scales: tuple[str, int] | None = None  # x is in fp8; by name, and their stride


@dataclass(frozen=True)
class SplitNorm:
    """FusedNorm of kernels/ops/gemm/skinny_epilogue_sm90.h, and columns and number of the sums that its tiles
    leave."""

    sums_in: Any
    n_sums: int
    eps: float
    weight: int
    scaled: Any
    sums_out: Any
    columns: int
    leaves: int


class Buffer:
    """Rows of expressions, as many as its bytes hold."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size
        self._rows: dict[int, Expression] = {}

    def __getitem__(self, row: int) -> Expression:
        return self._rows.get(row, ("nothing", self.name, row))

    def __setitem__(self, row: int, value: Expression) -> None:
        self._rows[row] = value

    def check(self, n_bytes: int) -> Buffer:
        assert n_bytes <= self.size, f"{self.name} has {self.size} bytes, and {n_bytes} are used"
        return self


class SymbolicMachine:
    """Runs steps of one model. Stands for the kernels and for cuBLAS.

    A kernel is the method that is named like it; who has no such methods here is told by a subclass. Buffers
    are arguments by their names, weights by their addresses, structs as tuples.
    """

    def __init__(
        self,
        config: Model,
        limits: Limits,
        shapes: Sequence[Shape],
        chip: Chip = CHIP,
        lower: LowerStep = lower_step,
    ) -> None:
        self.config, self._limits = config, limits
        described = lowered_steps(config, limits, tuple(shapes), chip, lower)
        self._lower = lower
        self._names = kernel_names(described)
        self._buffers = {name: Buffer(name, size) for name, size in buffer_bytes(described).items()}
        self._weights: dict[int, str] = {}
        self._scales_of: dict[int, int] = {}  # addresses of matrices in fp8 and of their scales
        weights = described_weights(config)
        reaches = tuple(
            replace(reach, rope=self._weight(f"rope{reach.index}", reach.rope)) for reach in weights.reaches
        )
        layers = tuple(self._layer(i, layer, reaches) for i, layer in enumerate(weights.layers))
        named = {name: self._weight(name, getattr(weights, name)) for name in ("embed", "final_norm", "head")}
        target, cache = target_of(config, chip), kv_cache(config, limits, KV_CACHE, CACHE_MAPS)
        loaded = DeviceWeights(layers=layers, reaches=reaches, **named)
        self.model = NativeModel(config, limits, loaded, cache, target)
        self._plans: dict[Shape, list[Choice]] = {}
        self._id = 0

    def run(self, shape: Shape, load: Load) -> list[Expression]:
        """Logits of the batch slots."""
        self._id += 1
        self._shape, self._load = shape, load
        if shape not in self._plans:
            self._plans[shape] = self._lower(self.model, shape)
        for choice in self._plans[shape]:
            for work in choice.launches:
                self._launch(work)
        return [self._at("logits")[batch_slot] for batch_slot in range(len(load.last))]

    # Addresses.

    def _weight(self, name: str, matrix: Matrix) -> Matrix:
        address = WEIGHTS + len(self._weights)
        self._weights[address] = name
        if matrix.scales is None:
            return replace(matrix, address=address)
        self._scales_of[address] = address + SCALES
        return replace(matrix, address=address, scales=replace(matrix.scales, address=address + SCALES))

    def _layer(self, i: int, layer: DeviceLayer, reaches: tuple[Reach, ...]) -> DeviceLayer:
        there = {field.name: getattr(layer, field.name) for field in fields(layer)}
        matrices = {name: of for name, of in there.items() if isinstance(of, Matrix)}
        reach = reaches[layer.reach.index]
        named = {name: self._weight(f"{name}{i}", of) for name, of in matrices.items()}
        scales = KvScales(1.0 + i, 1.5 + i) if self._limits.kv_fp8 else NO_KV_SCALES
        return DeviceLayer(reach=reach, kv_scales=scales, **named)

    def _at(self, name: str, rows: int = 0, row_bytes: int = 0) -> Buffer:
        return self._buffers[name].check(rows * row_bytes)

    def _argument(self, operand: Any) -> Any:
        match operand:
            case Place():
                return operand.name
            case Matrix():
                return operand.address
            case Tensor():
                return operand.of if isinstance(operand.of, int) else self._argument(operand.of)
            case Struct(format=format, parts=(Matrix(), *_)) if format == FP8_MATRIX:
                weight, scales = operand.parts
                assert self._argument(scales) == self._scales_of[self._argument(weight)], "another's scales"
                return self._argument(weight)
            case Struct():
                return tuple(self._argument(part) for part in operand.parts)
            case FromStep():
                return operand
            case None:
                return 0
        return operand

    # Products.

    def _library(self, gemm: LibraryGemm) -> None:
        fp32 = gemm.out.element is Element.FP32
        epilogue = Epilogue.ADD if gemm.adds else Epilogue.STORE_FP32 if fp32 else Epilogue.STORE
        sizes = (gemm.x.rows, gemm.x.columns, gemm.out.columns)
        self._multiply(Product(gemm.weight.address, gemm.x.name, gemm.out.name, *sizes, epilogue))

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
        return ("times", self._weights[weight], x)

    def _scaled(self, x: Expression, row: int, norm: SplitNorm | None) -> Expression:
        """E19: x with the factor of the sums, if they are those of its own row in the same shape."""
        if not norm or not norm.sums_in:
            return x
        assert norm.eps == self.config.norm_eps
        kind, weight, of = x if len(x) == 3 else (None, None, None)
        left = self._at(norm.sums_in)[row] == ("sums", norm.n_sums, norm.columns, of)
        return ("norm", weight, of) if kind == "without its factor" and left else ("wrong factor", x)

    def _wide(self, work: Any, epilogue: Epilogue, columns: int, tiles: int) -> None:
        """SkinnyParams's fields, and FusedNorm's, behind which the scales of weights in fp8 stand."""
        weight, x, out, cut, (*norm, scales) = map(self._argument, work.operands)
        if weight not in self._scales_of:
            norm.append(scales)
        else:
            assert scales == self._scales_of[weight], "the scales are another matrix's"
        rows, n_in, n_out, _, n_tiles, *_ = struct.unpack("<9I", cut)
        ends_step = self._weights[weight] in ("head", "embed")
        rooms = self.model.target.rooms(ends_step)
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

    def _run_plan(self, call: PlanCall) -> None:
        def rows_of(buffer: Place) -> list[Expression]:
            rows = self._at(buffer.name, buffer.rows, buffer.element.n_bytes * buffer.columns)
            return [rows[row] for row in range(buffer.rows)]

        outputs = computed(call, rows_of, lambda weight: self._weights[weight.address])
        for name, place in call.writes:
            to = self._at(place.name, place.rows, place.element.n_bytes * place.columns)
            for row, value in enumerate(outputs[name]):
                to[row] = value

    # Kernels, by name.

    def _launch(self, work: Work) -> None:
        if isinstance(work, LibraryGemm):
            self._library(work)
            return
        if isinstance(work, PlanCall):
            self._run_plan(work)
            return
        assert work.kernel in self._names, f"the model has no kernel {work.kernel}"
        found = re.fullmatch(r"(\w+)_kernel(?:<(.*)>)?", work.kernel)
        assert found
        name, template = found[1], (found[2] or "").split(", ")
        arguments = tuple(map(self._argument, work.operands))
        if name == "skinny_gemm":
            self._wide(work, epilogue_of(template[1]), int(template[2]), int(template[3]))
        elif name == "tiled_gemm":
            self._tiled(work, epilogue_of(template[1]))
        elif name == "tiled_fp8_gemm":
            self._tiled_fp8(work, epilogue_of(template[1]))
        elif name == "split_sums":
            self._split_sums(*arguments, work.grid[0], epilogue_of(template[1]))
        elif name == "gemv":
            self._multiply(Product(*arguments, epilogue_of(template[1])))
        elif name in ("moe_gemv", "moe_grouped_gemm", "moe_grouped_fp8_gemm"):
            down = template[1] == "blink::kDown"
            few = {"chooses": True} if "blink::kRoutingFused" in template else {}
            getattr(self, f"_{name}_{'down' if down else 'gate_up'}")(work.grid[0], *arguments, **few)
        else:
            getattr(self, f"_{name}")(work.grid[0], *arguments)

    def _gate(self, *_: Any) -> None: ...

    _prefill_plan = _sample = _gate

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


def epilogue_of(constant: str) -> Epilogue:
    return Epilogue(constant.removeprefix("blink::"))
