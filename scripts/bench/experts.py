#!/usr/bin/env python3
"""The experts of a layer, with weights in bf16 and in fp8, by row and by block.

    scripts/bench/experts.py --model qwen3-30b-a3b --tokens 1 8 32 64 512 4096

Random numbers. What is timed is what a step launches for a layer's experts: norm, router, both matmuls and
the sum; of one token, behind a matmul that has summed the router's logits. Several layers follow each other,
so that no weight is in L2. `experts` counts those that a layer's tokens choose, on average; GB/s are of their
weights.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.matmuls import SCALE, Fastest, LoweredStep  # noqa: E402
from bench.replay import replayed_us  # noqa: E402
from bench.shape import shape_config  # noqa: E402

from gpu_backend import abi  # noqa: E402
from gpu_backend.cuda.cublas import WORKSPACE_BYTES, Cublas  # noqa: E402
from gpu_backend.cuda.driver import Device, Stream  # noqa: E402
from gpu_backend.cuda.memory import DeviceMemory  # noqa: E402
from gpu_backend.element import Element  # noqa: E402
from gpu_backend.engines.native.gemm_clock import GemmClock  # noqa: E402
from gpu_backend.engines.native.kernels import Kernels  # noqa: E402
from gpu_backend.engines.native.launcher import StepLauncher  # noqa: E402
from gpu_backend.engines.native.lowering import buffer_bytes, kernel_names  # noqa: E402
from gpu_backend.engines.native.weights import RANDOM_FP8, enqueue_random, enqueue_random_fp8  # noqa: E402
from gpu_backend.models.description import Model  # noqa: E402
from gpu_backend.models.quantization import QUANTIZATIONS, ScaleForm  # noqa: E402
from gpu_backend.ops.candidate import Choice  # noqa: E402
from gpu_backend.ops.choice import choose, dividing_alike  # noqa: E402
from gpu_backend.ops.gemv import gemv_rows  # noqa: E402
from gpu_backend.ops.gpu import Target  # noqa: E402
from gpu_backend.ops.matrix import Buffer, Matrix  # noqa: E402
from gpu_backend.ops.operations import Moe, Norm, Routing  # noqa: E402

LAYERS = 4
BF16, FP8, FP32 = Element.BF16, Element.FP8, Element.FP32
TYPES: dict[str, ScaleForm | None] = {"bf16": None, **QUANTIZATIONS}


@dataclass(frozen=True)
class Layer:
    norm: Matrix
    router: Matrix
    gate_up: Matrix
    down: Matrix


class Bench:
    """Raises CudaError."""

    def __init__(self, config: Model, tokens: list[int]) -> None:
        assert config.experts is not None
        self._config, self._experts = config, config.experts
        self._device, self._stream = Device(), Stream()
        self._memory = DeviceMemory(self._device)
        rows = gemv_rows(config.hidden, has_experts=True)
        self._target = Target(self._device.n_multiprocessors, has_experts=True, gemv_rows=rows)
        self._layers = {form: [self._layer(form) for _ in range(LAYERS)] for form in TYPES.values()}
        steps = [self._step(n, form) for form in TYPES.values() for n in tokens]
        names = {*kernel_names(steps), RANDOM_FP8}
        self._kernels = Kernels(self._device.arch, names, BF16)
        self._sizes = buffer_bytes(steps)
        self._addresses = {name: self._memory.allocate(size) for name, size in self._sizes.items()}
        self._step_set = self._one_sequence(max(tokens))
        self._fill(max(tokens))
        workspace = self._memory.allocate(WORKSPACE_BYTES)
        self._clock = GemmClock(self._device, self._kernels, workspace, self._target.blocks)
        self._cublas = Cublas(self._stream, workspace, self._target.blocks)
        self._launcher = StepLauncher(
            self._kernels, self._cublas, Fastest(self._clock), self._stream, self._addresses, b""
        )

    def _layer(self, form: ScaleForm | None) -> Layer:
        hidden, inner, count = self._config.hidden, self._experts.intermediate, self._experts.count
        return Layer(
            self._matrix(1, hidden, None),
            self._matrix(count, hidden, None),
            self._matrix(2 * count * inner, hidden, form),
            self._matrix(count * hidden, inner, form),
        )

    def _matrix(self, rows: int, columns: int, form: ScaleForm | None) -> Matrix:
        element = BF16 if form is None else FP8
        matrix = Matrix(rows, columns, element, self._memory.allocate(rows * columns * element.n_bytes))
        if form is None:
            return matrix
        values = np.full(form.shape(rows, columns), SCALE, np.float32)
        address = self._memory.allocate(values.nbytes)
        self._memory.write(address, values.tobytes())
        return replace(matrix, scales=Matrix(*values.shape, FP32, address))

    def _one_sequence(self, tokens: int) -> bytes:
        """A step set in which no token is padding."""
        sequences = np.zeros(tokens, np.uint32)
        address = self._memory.allocate(sequences.nbytes)
        self._memory.write(address, sequences.tobytes())
        step_set = np.zeros((), abi.StepSet)
        step_set["token_sequence"] = address
        return step_set.tobytes()

    def _fill(self, tokens: int) -> None:
        kernels, stream = self._kernels, self._stream
        for seed, layer in enumerate(layer for layers in self._layers.values() for layer in layers):
            for i, matrix in enumerate((layer.norm, layer.router, layer.gate_up, layer.down)):
                n, number = matrix.rows * matrix.columns, 4 * seed + i
                if matrix.element is FP8:
                    enqueue_random_fp8(kernels, stream, matrix.address, n, number)
                else:
                    mean, std = (1.0, 0.0) if matrix is layer.norm else (0.0, 0.02)
                    enqueue_random(kernels, stream, matrix.address, n, number, mean, std)
        rng = np.random.default_rng(0)
        residual = rng.standard_normal((tokens, self._config.hidden), np.float32)
        self._memory.write(self._addresses["residual"], residual.tobytes())
        for name in {"router_sums", "router_arrivals"} & self._addresses.keys():
            self._memory.write(self._addresses[name], bytes(self._sizes[name]))
        stream.synchronize()

    def _step(self, tokens: int, form: ScaleForm | None) -> LoweredStep:
        return dividing_alike(partial(self._lower_on, tokens, form), self._target)

    def _lower_on(self, tokens: int, form: ScaleForm | None, target: Target) -> LoweredStep:
        hidden, experts = self._config.hidden, self._experts
        routing = Routing(experts.count, experts.per_token, experts.renormalise)
        residual, normed = Buffer("residual", tokens, hidden, FP32), Buffer("normed", tokens, hidden, BF16)
        return [
            choose(
                Moe(
                    routing,
                    experts.intermediate,
                    Norm(layer.norm, self._config.norm_eps),
                    layer.router,
                    layer.gate_up,
                    layer.down,
                    residual,
                    normed,
                    routed=tokens == 1,
                ),
                target,
            )
            for layer in self._layers[form]
        ]

    def time(self, tokens: int, form: ScaleForm | None) -> tuple[str, float, float]:
        """The family, microseconds of a layer, and how many experts a layer's tokens choose."""
        step = self._step(tokens, form)
        us = replayed_us(self._launcher, self._stream, step, self._step_set) / LAYERS
        chosen = [self._chosen(choice, tokens) for choice in step]
        return step[0].name, us, sum(chosen) / LAYERS

    def _chosen(self, choice: Choice, tokens: int) -> int:
        """Experts that a layer's tokens choose."""
        self._launcher.enqueue([choice], self._step_set)
        self._stream.synchronize()
        n_bytes = 4 * tokens * self._experts.per_token
        chosen = self._memory.read(self._addresses["expert_choice"], n_bytes)
        return len(np.unique(np.frombuffer(chosen, np.uint32)))

    def weight_bytes(self, form: ScaleForm | None, experts: float) -> float:
        """Of so many experts of a layer."""
        layer = self._layers[form][0]
        return experts / self._experts.count * (layer.gate_up.n_bytes + layer.down.n_bytes)

    def flops(self, tokens: int) -> float:
        rows = 3 * self._experts.intermediate * self._config.hidden
        return 2.0 * tokens * self._experts.per_token * rows

    def close(self) -> None:
        for owned in (self._cublas, self._clock, self._kernels, self._stream, self._memory, self._device):
            owned.close()  # type: ignore[attr-defined]


def table(bench: Bench, tokens: list[int]) -> Iterator[str]:
    yield "tokens | type | kernels | us | experts | GB/s | TFLOP/s | bf16 / this"
    for n in tokens:
        bf16 = 0.0
        for name, form in TYPES.items():
            kernels, us, chosen = bench.time(n, form)
            bf16 = bf16 or us
            rate, flops = bench.weight_bytes(form, chosen) / us / 1e3, bench.flops(n) / us / 1e6
            cells = (kernels, f"{us:.1f}", f"{chosen:.1f}", f"{rate:.0f}", f"{flops:.1f}", f"{bf16 / us:.2f}")
            yield " | ".join((str(n), name, *cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--model", default="qwen3-30b-a3b", help="a shape of scripts/bench/shapes with experts"
    )
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 8, 32, 64, 512, 4096])
    arguments = parser.parse_args()
    bench = Bench(shape_config(arguments.model), arguments.tokens)
    for line in table(bench, arguments.tokens):
        print(line, flush=True)
    bench.close()


if __name__ == "__main__":
    main()
