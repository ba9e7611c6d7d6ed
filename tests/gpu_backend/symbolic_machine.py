"""Expressions in place of numbers, for steps of the CUDA engine.

A planned step runs on this machine, whose buffers have the sizes of real ones, and whose kernels say what
they make of rows: ("norm", "input_norm0", ("embed", 7, 3)). A row that this step did not write has the
expression of an earlier step, or none, and so has everything that is made of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from symbolic_operands import CACHE_MAPS, CHIP, KV_CACHE, SCALES, WEIGHTS, Buffer, Load, Product, epilogue_of
from symbolic_plan import Expression, computed

from gpu_backend.cuda.chip import Chip
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
from gpu_backend.ops.attention import NO_KV_SCALES, KvScales, Reach
from gpu_backend.ops.launch import FromStep, LibraryGemm, PlanCall, Struct, Tensor, Work
from gpu_backend.ops.matrix import Buffer as Place
from gpu_backend.ops.matrix import Matrix
from gpu_backend.ops.weights import CODE_MATRIX, FP8_MATRIX


class SymbolicMachine:
    """Runs steps of one model. Stands for the kernels and for cuBLAS.

    A kernel is the method that is named like it, which a subclass has for each kind of operation. Buffers are
    arguments by their names, weights by their addresses, structs as tuples.
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
        self._plans: dict[Shape, list[Work]] = {}
        self._id = 0

    def run(self, shape: Shape, load: Load) -> list[Expression]:
        """Logits of the batch slots."""
        self._id += 1
        self._shape, self._load = shape, load
        for work in self._plan(shape):
            self._launch(work)
        return [self._at("logits")[batch_slot] for batch_slot in range(len(load.last))]

    def kernels(self, shape: Shape) -> tuple[str, ...]:
        """The names of what a step of this shape launches, in order."""
        return tuple(getattr(work, "kernel", type(work).__name__) for work in self._plan(shape))

    def _plan(self, shape: Shape) -> list[Work]:
        if shape not in self._plans:
            choices = self._lower(self.model, shape)
            self._plans[shape] = [work for choice in choices for work in choice.launches]
        return self._plans[shape]

    # Addresses.

    def _weight(self, name: str, matrix: Matrix) -> Matrix:
        address = WEIGHTS + len(self._weights)
        self._weights[address] = name
        if matrix.scales is None:
            return replace(matrix, address=address)
        self._scales_of[address] = address + SCALES
        return replace(matrix, address=address, scales=replace(matrix.scales, address=address + SCALES))

    def _named(self, weight: int | str) -> str:
        """What a matrix is called, which may have been unpacked to a buffer."""
        if isinstance(weight, int):
            return self._weights[weight]
        kind, name = self._at(weight)[0]
        assert kind == "unpacked"
        return str(name)

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
                return operand.buffer or operand.address
            case Tensor():
                return operand.of if isinstance(operand.of, int) else self._argument(operand.of)
            case Struct(format=format, parts=(Matrix(), *_)) if format in (FP8_MATRIX, CODE_MATRIX):
                weight, scales, *_ = operand.parts
                assert self._argument(scales) == self._scales_of[self._argument(weight)], "another's scales"
                return self._argument(weight)
            case Struct():
                return tuple(self._argument(part) for part in operand.parts)
            case FromStep():
                return operand
            case None:
                return 0
        return operand

    # Kernels, by name, and a library's plans.

    def _run_plan(self, call: PlanCall) -> None:
        def rows_of(buffer: Place) -> list[Expression]:
            rows = self._at(buffer.name, buffer.rows, buffer.element.n_bytes * buffer.columns)
            return [rows[row] for row in range(buffer.rows)]

        outputs = computed(call, rows_of, lambda weight: self._weights[weight.address])
        for name, place in call.writes:
            to = self._at(place.name, place.rows, place.element.n_bytes * place.columns)
            for row, value in enumerate(outputs[name]):
                to[row] = value

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
        elif name in ("gemv", "code_gemv"):
            self._multiply(Product(*arguments, epilogue_of(template[1])))
        elif name in ("moe_gemv", "moe_grouped_gemm", "moe_grouped_codes_gemm", "moe_grouped_fp8_gemm"):
            down = template[1] != "blink::kGateUp"
            few = {"chooses": True} if "blink::kRoutingFused" in template else {}
            getattr(self, f"_{name}_{'down' if down else 'gate_up'}")(work.grid[0], *arguments, **few)
        else:
            getattr(self, f"_{name}")(work.grid[0], *arguments)

    def _gate(self, *_: Any) -> None: ...

    _sample = _gate
