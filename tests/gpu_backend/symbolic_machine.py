"""Expressions in place of numbers, for steps of the CUDA engine.

NativeStep enqueues on this machine, whose buffers have the sizes of real ones, and addresses, and whose
kernels say what they make of rows: ("norm", "input_norm0", ("embed", 7, 3)). A row that this step did not
write has the expression of an earlier step, or none, and so has everything that is made of it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import pytest

from gpu_backend.cuda.kernels import half_dtype, kernel_names
from gpu_backend.cuda.product import FP32_BYTES, HALF_BYTES, Product
from gpu_backend.cuda.shared_memory import rooms_of
from gpu_backend.cuda.wide import WideCut, WideNorm, wide_op
from gpu_backend.engine import flash, native_linear, native_mixture, native_step
from gpu_backend.engine.activations import Activations
from gpu_backend.engine.base import Limits, Shape
from gpu_backend.engine.native_held import NO_ROUTER
from gpu_backend.engine.native_weights import DeviceLayer, DeviceWeights
from gpu_backend.engine.sizing import SUM_PLACES, activation_bytes
from gpu_backend.model.config import ModelConfig

MULTIPROCESSORS = 132
KV_CACHE, CACHE_MAPS, WEIGHTS = 1 << 50, 1 << 51, 1 << 40
ELEMENT = {"half": HALF_BYTES, "silu": HALF_BYTES, "float": FP32_BYTES, "add": FP32_BYTES}
ZERO = ("zero",)

Expression = Any


@dataclass(frozen=True)
class Load:
    """What a step has of its capacities: rows that decode first, then prompts; `last` tokens by lane."""

    tokens: int
    decoding: int
    last: tuple[int, ...]


@dataclass(frozen=True)
class OwnProduct:
    """The one argument of a wide or tiled product."""

    product: Product
    cut: WideCut | None = None
    norm: WideNorm | None = None


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
    """Runs steps of one model. Stands for the kernels, for cuBLAS and for what chooses its algorithms.

    A kernel is the method that is named like it; who has no such methods here is told by a subclass.
    """

    def __init__(
        self, config: ModelConfig, limits: Limits, shapes: list[Shape], patch: pytest.MonkeyPatch
    ) -> None:
        self.config, self._limits = config, limits
        self._names = kernel_names(config, MULTIPROCESSORS)
        self._buffers: dict[int, Buffer] = {}
        addresses, at = {}, 1 << 20
        for name, size in activation_bytes(config, shapes, MULTIPROCESSORS).items():
            addresses[name], self._buffers[at] = at, Buffer(name, size)
            at += size + 4096
        self._act = Activations(**addresses)
        self._weights: dict[int, str] = {}
        layers = tuple(self._layer(i) for i in range(config.n_layers))
        ends = [self._weight(name) for name in ("embed", "final_norm", "head", "rope")]
        weights = DeviceWeights(ends[0], layers, *ends[1:])
        patch.setattr(native_linear, "wide_launch", self._wide_launch)
        patch.setattr(native_linear, "tiled_launch", self._tiled_launch)
        patch.setattr(native_mixture, "tensor_map", lambda address, *_, **__: address)
        patch.setattr(flash, "tensor_map", lambda address, *_, **__: address)
        patch.setattr(native_step, "launch_sample", lambda *_: None)
        self._step = native_step.NativeStep(
            config, limits, b"tables", self, self, self, "stream", weights, self._act,  # type: ignore[arg-type]
            KV_CACHE, CACHE_MAPS, MULTIPROCESSORS, None,
        )  # fmt: skip
        self._id = 0

    def run(self, shape: Shape, load: Load) -> list[Expression]:
        """Logits of the lanes."""
        self._id += 1
        self._shape, self._load = shape, load
        self._step.enqueue(shape, b"set")
        return [self._at(self._act.logits)[lane] for lane in range(len(load.last))]

    # What NativeStep calls.

    def algorithm(self, product: Product, half: int) -> None:
        return None

    def linear(self, product: Product, half: int, algorithm: None) -> None:
        self._multiply(OwnProduct(product))

    def __getitem__(self, op: str) -> Any:
        assert op in self._names, f"the model has no kernel {op}"
        machine = self

        class Kernel:
            def launch(self, grid: Any, block: Any, stream: Any, *arguments: Any, **flags: Any) -> None:
                machine._launch(op, grid[0], arguments)

        return Kernel()

    # Addresses.

    def _weight(self, name: str) -> int:
        address = WEIGHTS + len(self._weights)
        self._weights[address] = name
        return address

    def _layer(self, i: int) -> DeviceLayer:
        names = ["input_norm", "qkv", "o", "post_norm", "gate_up", "down", "q_norm", "k_norm"]
        names += ["router"] if self.config.has_experts(i) else []
        return DeviceLayer(**{name: self._weight(f"{name}{i}") for name in names})

    def _at(self, address: int, rows: int = 0, row_bytes: int = 0) -> Buffer:
        assert address in self._buffers, f"{address:x} is no buffer"
        return self._buffers[address].check(rows * row_bytes)

    # Products.

    def _wide_launch(self, cut: WideCut, product: Product, norm: WideNorm, most_blocks: int) -> Any:
        rooms = rooms_of(self.config, product.n_out)
        assert cut.shared_bytes <= (rooms.large if cut.splits <= 2 else rooms.small), "E23"
        return wide_op(product.output, cut), (1, 1, 1), (1, 1, 1), (OwnProduct(product, cut, norm),), {}

    @staticmethod
    def _tiled_launch(product: Product, cut: Any, n_multiprocessors: int) -> Any:
        return f"tiled_{product.output}", (1, 1, 1), (1, 1, 1), (OwnProduct(product),), {}

    def _multiply(self, own: OwnProduct) -> None:
        product, cut, norm = own.product, own.cut, own.norm
        x = self._at(product.x, product.rows, HALF_BYTES * product.n_in)
        out = self._at(product.out, product.rows, ELEMENT[product.output] * product.n_out)
        made = [
            self._times(product.weight, self._scaled(x[row], row, cut, norm)) for row in range(product.rows)
        ]
        for row, value in enumerate(made):
            if product.output == "add":
                out[row] = ("add", out[row], value)
            else:
                out[row] = ("silu", value) if product.output == "silu" else value
        if cut and norm and norm.weight:
            assert half_dtype(self.config) == "bfloat16", "E19: in float16 it might overflow"
            sums = self._at(norm.sums_out).check(FP32_BYTES * cut.n_sums * cut.columns)
            scaled = self._at(norm.scaled, product.rows, HALF_BYTES * product.n_out)
            for row in range(product.rows):
                scaled[row] = ("without its factor", self._weights[norm.weight], out[row])
                sums[row] = ("sums", cut.n_sums, cut.columns, out[row])

    def _times(self, weight: int, x: Expression) -> Expression:
        return ("times", self._weights[weight], x)

    def _scaled(self, x: Expression, row: int, cut: WideCut | None, norm: WideNorm | None) -> Expression:
        """E19: x with the factor of the sums, if they are those of its own row in the same shape."""
        if not cut or not norm or not norm.sums_in:
            return x
        kind, weight, of = x if len(x) == 3 else (None, None, None)
        left = self._at(norm.sums_in)[row] == ("sums", norm.n_sums, cut.columns, of)
        return ("norm", weight, of) if kind == "without its factor" and left else ("wrong factor", x)

    # Kernels, by name.

    def _launch(self, op: str, rows: int, arguments: tuple[Any, ...]) -> None:
        if isinstance(arguments[-1], OwnProduct):
            self._multiply(arguments[-1])
        elif op.startswith("linear_"):
            self._multiply(OwnProduct(Product(*arguments, op.split("_")[1])))
        elif op.startswith("expert_stream_gate_up"):
            self._expert_gate_up(*arguments[1:3], chooses=op.endswith("_few"))
        else:
            getattr(self, f"_{op}")(rows, *arguments)

    def _gate(self, *_: Any) -> None: ...

    _prefill_plan = _gate

    def _embed(
        self, rows: int, step_set: bytes, tables: bytes, embed: int, residual: int, hidden: int, scale: float
    ) -> None:
        assert scale == 1
        out = self._at(residual, rows, FP32_BYTES * hidden)
        assert self._weights[embed] == "embed"
        for token in range(self._load.tokens):
            out[token] = ("embed", self._id, token)

    def _rmsnorm(self, rows: int, residual: int, weight: int, eps: float, normed: int, hidden: int) -> None:
        x = self._at(residual, rows, FP32_BYTES * hidden)
        out = self._at(normed, rows, HALF_BYTES * hidden)
        for row in range(rows):
            out[row] = ("norm", self._weights[weight], x[row])

    def _gather_rmsnorm(
        self, rows: int, step_set: bytes, residual: int, weight: int, eps: float, out: int, hidden: int
    ) -> None:
        x, to = self._at(residual), self._at(out, rows, HALF_BYTES * hidden)
        for lane, token in enumerate(self._load.last):
            to[lane] = ("norm", self._weights[weight], x[token])

    def _gather_last(
        self, rows: int, step_set: bytes, residual: int, attention: int, to_residual: int, to_attention: int,
        hidden: int, width: int,
    ) -> None:  # fmt: skip
        pairs = [(residual, to_residual, FP32_BYTES * hidden), (attention, to_attention, HALF_BYTES * width)]
        for x, out, row_bytes in pairs:
            for lane, token in enumerate(self._load.last):
                self._at(out, rows, row_bytes)[lane] = self._at(x)[token]

    def _silu_mul(self, rows: int, gate_up: int, product: int, intermediate: int) -> None:
        x = self._at(gate_up, rows, 2 * HALF_BYTES * intermediate)
        out = self._at(product, rows, HALF_BYTES * intermediate)
        for row in range(rows):
            out[row] = ("silu", x[row])

    def _held_qkv(
        self, _: int, weight: int, residual: int, norm: int, eps: float, out: int, rows: int, width: int,
        router: bytes,
    ) -> None:  # fmt: skip
        assert router == NO_ROUTER
        x, to = self._at(residual), self._at(out, rows, HALF_BYTES * width)
        for row in range(rows):
            to[row] = self._times(weight, ("norm", self._weights[norm], x[row]))

    def _held_o(
        self, _: int, weight: int, x: int, norm: int, eps: float, out: int, rows: int, width: int,
        router: bytes,
    ) -> None:  # fmt: skip
        self._multiply(OwnProduct(Product(weight, x, out, rows, self.config.attention_width, width, "add")))
        if router == NO_ROUTER:
            return
        router_norm, matrix, to, experts = struct.unpack("<3QI4x", router)
        sums = self._at(to, SUM_PLACES * experts, 8)
        assert self.config.experts is not None
        assert (rows, experts) == (1, self.config.experts.count)
        assert sums[0] in (ZERO, ("nothing", "router_sums", 0)), "they add up to what was there"
        sums[0] = self._times(matrix, ("norm", self._weights[router_norm], self._at(out)[0]))
