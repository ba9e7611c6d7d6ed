#!/usr/bin/env python3
"""The matmuls of a layer: with weights in fp8 or in four bits, beside those in bf16.

    scripts/bench/matmuls.py --model llama-3-8b --rows 128 256 512 1024 2048 8192
    scripts/bench/matmuls.py --model llama-3.2-1b --rows 1 8 32 64 --layers 32
    scripts/bench/matmuls.py --model llama-3-8b --rows 32 64 128 512 --cuts
    scripts/bench/matmuls.py --model llama-3-8b --rows 1 8 32 64 --forms fp8 int4 mxfp4

Random numbers. Each matmul is what a step launches for it where each operation has its own kernel; of many
rows with its input's quantisation in fp8, which the norm in front of qkv and gate_up does in a step. Matrices
of several layers follow each other, of which small ones need many, so that no weight is in L2. Rates are of
the product's floating-point operations and of the weights' bytes, whose share is that of the read rate which
a kernel reaches that only reads. cuBLAS runs its fastest algorithm. With
--cuts, the products of fp8 are timed with every width of tiles and number of splits that
gpu_backend/ops/tiled_fp8_cut.py does not expect to take far longer than the best, beside what it expects; of
few rows, those by row are timed with every tiling of gpu_backend/ops/skinny_cut.py. The cut that a step has
is marked.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.ceilings import reads, time_us  # noqa: E402
from bench.replay import replayed_us  # noqa: E402
from bench.shape import shape_config  # noqa: E402

from gpu_backend.cuda.cublas import WORKSPACE_BYTES, Algorithm, Cublas  # noqa: E402
from gpu_backend.cuda.driver import Device, Stream  # noqa: E402
from gpu_backend.cuda.gemm import Gemm  # noqa: E402
from gpu_backend.cuda.memory import DeviceMemory  # noqa: E402
from gpu_backend.element import Element  # noqa: E402
from gpu_backend.engines.native.gemm_clock import GemmClock  # noqa: E402
from gpu_backend.engines.native.kernels import Kernels  # noqa: E402
from gpu_backend.engines.native.launcher import StepLauncher  # noqa: E402
from gpu_backend.engines.native.lowering import buffer_bytes, kernel_names  # noqa: E402
from gpu_backend.engines.native.model import matrix_of, target_of  # noqa: E402
from gpu_backend.engines.native.random_codes import RandomCodes  # noqa: E402
from gpu_backend.engines.native.weights import RANDOM_FP8, enqueue_random, enqueue_random_fp8  # noqa: E402
from gpu_backend.models.description import Model, Weight  # noqa: E402
from gpu_backend.models.quantization import (  # noqa: E402
    QUANTIZATIONS,
    ROUNDINGS,
    Form,
    GroupForm,
    ScaleForm,
)
from gpu_backend.ops.candidate import Choice  # noqa: E402
from gpu_backend.ops.choice import choose  # noqa: E402
from gpu_backend.ops.gpu import BESIDE_L1_SHARED_BYTES, Target  # noqa: E402
from gpu_backend.ops.launch import Launch, LibraryGemm  # noqa: E402
from gpu_backend.ops.matrix import Buffer, Matrix  # noqa: E402
from gpu_backend.ops.operations import Epilogue, MatMul, Role  # noqa: E402
from gpu_backend.ops.quantize import quantize_for  # noqa: E402
from gpu_backend.ops.skinny_cut import SKINNY_MAX_ROWS, SkinnyCut  # noqa: E402
from gpu_backend.ops.skinny_cut import possible_cuts as skinny_cuts  # noqa: E402
from gpu_backend.ops.skinny_gemm import WORD, skinny_launch, tiling_of  # noqa: E402
from gpu_backend.ops.tiled_fp8 import TiledFp8Gemm, tiled_fp8_launches  # noqa: E402
from gpu_backend.ops.tiled_fp8_cut import (  # noqa: E402
    TiledFp8Cut,
    estimated_us,
    possible_cuts,
    tiled_fp8_cut,
)

LAYERS = 4
BF16, FP8, FP32 = Element.BF16, Element.FP8, Element.FP32
SCALE = 1e-3
HEAD_OF_FEW = "rows | matmul | tile rows | splits | tiles | panels | w slots | x slots | KiB | us | chosen"
HEAD_OF_MANY = "rows | matmul | type | columns | splits | tiles | us | TFLOP/s | us expected | chosen"
FAR_LONGER = 1.5  # times as long as the best cut is expected to take: such a cut is not timed
LoweredStep = list[Choice]


@dataclass(frozen=True)
class Sizes:
    role: Role
    k: int
    n: int
    epilogue: Epilogue

    @property
    def weight_rows(self) -> int:
        return 2 * self.n if self.epilogue is Epilogue.GATED else self.n

    def flops(self, rows: int) -> float:
        return 2.0 * rows * self.k * self.weight_rows


def sizes_of(config: Model) -> list[Sizes]:
    hidden, inner = config.hidden, config.intermediate
    return [
        Sizes(Role.QKV, hidden, config.qkv_width, Epilogue.STORE),
        Sizes(Role.O, config.attention_width, hidden, Epilogue.ADD),
        Sizes(Role.GATE_UP, hidden, inner, Epilogue.GATED),
        Sizes(Role.DOWN, inner, hidden, Epilogue.ADD),
    ]


def step_of(sizes: Sizes, rows: int, weights: list[Matrix], target: Target) -> LoweredStep:
    """One matmul for each of the weights."""
    x = Buffer("x", rows, sizes.k, BF16)
    out = Buffer("out", rows, sizes.n, FP32 if sizes.epilogue is Epilogue.ADD else BF16)
    step = []
    for weight in weights:
        matmul = MatMul(sizes.role, weight, x, out, sizes.epilogue)
        if weight.element is FP8 and rows > SKINNY_MAX_ROWS:
            quantize = quantize_for(weight, x)
            step.append(choose(quantize, target))
            matmul = replace(matmul, x=quantize.out, x_scales=quantize.scales)
        step.append(choose(matmul, target))
    return step


def kernel_of(choice: Choice) -> str:
    """With the width of its tiles and the splits of k, where it is in fp8."""
    product = choice.launches[0]
    if choice.name != TiledFp8Gemm.name or isinstance(product, LibraryGemm):
        return choice.name
    columns, splits = product.kernel.rstrip(">").rsplit(", ", 1)[1], 1
    if len(choice.launches) > 1:
        splits = choice.launches[1].operands[2]  # type: ignore[union-attr, assignment]
    return f"{choice.name} of {columns} columns, {splits} splits"


@dataclass(frozen=True)
class TimedCut:
    """A way to cut the matmuls of a step, and the step. `name`: of the scales, in QUANTIZATIONS. `before`: a
    step that quantises x, without which the tensor cores would multiply zeros, for less power."""

    name: str
    cut: TiledFp8Cut | SkinnyCut
    step: LoweredStep
    before: LoweredStep


class Fastest:
    """GemmChoice's answer, without its file."""

    def __init__(self, clock: GemmClock) -> None:
        self._clock = clock
        self._answers: dict[tuple[int, int, int, str], Algorithm | None] = {}

    def algorithm(self, product: Gemm, half: int) -> Algorithm | None:
        key = (product.rows, product.n_in, product.n_out, product.output)
        if key not in self._answers:
            has_room = self._clock.has_room(product)
            self._answers[key] = self._clock.fastest(product, half, [product.weight]) if has_room else None
        return self._answers[key]


class Bench:
    def __init__(
        self,
        config: Model,
        rows: list[int],
        cuts: bool = False,
        layers: int = LAYERS,
        forms: Sequence[str] = tuple(QUANTIZATIONS),
    ) -> None:
        """`cuts`: the products of fp8 are to be timed however they are cut. `layers`: whose matrices follow
        each other. `forms`: of weights, by their names in ROUNDINGS; beside bf16."""
        self._layers = layers
        self.forms: dict[str, Form | None] = {"bf16": None, **{name: ROUNDINGS[name] for name in forms}}
        self._device, self._stream = Device(), Stream()
        self._memory = DeviceMemory(self._device)
        self._target = target_of(config, self._device.chip)
        self.sizes, self._rows = sizes_of(config), rows
        self._weights = {
            (sizes, form): self._allocate(sizes, form) for sizes in self.sizes for form in self.forms.values()
        }
        steps = [self._step(sizes, n, form) for sizes, form in self._weights for n in rows]
        if cuts:
            steps += [cut.step for sizes in self.sizes for n in rows for cut in self.cuts(sizes, n)]
        names = {*kernel_names(steps), RANDOM_FP8}
        self._kernels = Kernels(self._device.arch, names, BF16)
        self._addresses = {name: self._memory.allocate(size) for name, size in buffer_bytes(steps).items()}
        self._fill()
        workspace = self._memory.allocate(WORKSPACE_BYTES)
        self._clock = GemmClock(self._device, self._kernels, workspace, self._target.blocks)
        self._cublas = Cublas(self._stream, workspace, self._target.blocks)
        self._launcher = StepLauncher(
            self._kernels, self._cublas, Fastest(self._clock), self._stream, self._addresses, b""
        )

    def _allocate(self, sizes: Sizes, form: Form | None) -> list[Matrix]:
        rows, k = sizes.weight_rows, sizes.k
        if isinstance(form, GroupForm):
            weight = Weight(("",), (rows, k), scales=form)
            n_bytes = matrix_of(weight, BF16).n_bytes
            return [matrix_of(weight, BF16, self._memory.allocate(n_bytes)) for _ in range(self._layers)]
        element = BF16 if form is None else FP8
        found = []
        for _ in range(self._layers):
            matrix = Matrix(rows, k, element, self._memory.allocate(rows * k * element.n_bytes))
            if form is not None:
                values = np.full(form.shape(rows, k), SCALE, np.float32)
                address = self._memory.allocate(values.nbytes)
                self._memory.write(address, values.tobytes())
                matrix = replace(matrix, scales=Matrix(*values.shape, FP32, address))
            found.append(matrix)
        return found

    def _fill(self) -> None:
        codes = RandomCodes(self._memory, BF16.dtype, len(self._weights))
        for seed, matrices in enumerate(self._weights.values()):
            for matrix in matrices:
                n = matrix.rows * matrix.columns
                if matrix.groups:
                    codes.fill(matrix, matrix.groups, 0.02)
                elif matrix.element is FP8:
                    enqueue_random_fp8(self._kernels, self._stream, matrix.address, n, seed)
                else:
                    enqueue_random(self._kernels, self._stream, matrix.address, n, seed, 0.0, 0.02)
        n = max(self._rows) * max(sizes.k for sizes in self.sizes)
        enqueue_random(self._kernels, self._stream, self._addresses["x"], n, 1000, 0.0, 1.0)
        self._stream.synchronize()

    def _step(self, sizes: Sizes, rows: int, form: Form | None) -> LoweredStep:
        """A matmul in halves stands beside experts in halves, which need L1 (E23)."""
        beside_l1 = self._target.has_experts and form is None
        target = replace(self._target, shared_bytes=BESIDE_L1_SHARED_BYTES) if beside_l1 else self._target
        return step_of(sizes, rows, self._weights[sizes, form], target)

    def cuts(self, sizes: Sizes, rows: int) -> list[TimedCut]:
        """The products in fp8, of many rows quantised before, cut in every way that may be fast."""
        shape = (rows, sizes.k, sizes.n, sizes.epilogue)
        if rows <= SKINNY_MAX_ROWS:
            rooms = self._target.rooms(False)
            cuts = skinny_cuts(*shape, self._target.multiprocessors, rooms, WORD // FP8.n_bits)
            return [self._cut(sizes, rows, "fp8", cut) for cut in cuts]
        found = []
        for name, form in QUANTIZATIONS.items():
            expected = [(cut, self.expected_us(cut, sizes, form)) for cut in possible_cuts(*shape)]
            most = FAR_LONGER * min(us for _, us in expected)
            found += [self._cut(sizes, rows, name, cut) for cut, us in expected if us <= most]
        return found

    def _cut(self, sizes: Sizes, rows: int, name: str, cut: TiledFp8Cut | SkinnyCut) -> TimedCut:
        step = self._step(sizes, rows, QUANTIZATIONS[name])
        products = [choice for choice in step if isinstance(choice.op, MatMul)]
        return TimedCut(name, cut, [replace(of, launches=self._launches(of, cut)) for of in products], step)

    def _launches(self, choice: Choice, cut: TiledFp8Cut | SkinnyCut) -> tuple[Launch, ...]:
        assert isinstance(choice.op, MatMul)
        if isinstance(cut, SkinnyCut):
            return (skinny_launch(choice.op, cut, self._target),)
        return tuple(tiled_fp8_launches(choice.op, cut, self._target))

    def chosen(self, sizes: Sizes, rows: int, form: ScaleForm) -> TiledFp8Cut | SkinnyCut:
        """The cut that a step has."""
        if rows > SKINNY_MAX_ROWS:
            shape = (rows, sizes.k, sizes.n, sizes.epilogue, form)
            return tiled_fp8_cut(*shape, self._target.multiprocessors)
        op = self._step(sizes, rows, form)[0].op
        assert isinstance(op, MatMul)
        return tiling_of(op, self._target)

    def expected_us(self, cut: TiledFp8Cut, sizes: Sizes, form: ScaleForm) -> float:
        return estimated_us(cut, sizes.n, form, self._target.multiprocessors)

    def time(self, sizes: Sizes, rows: int, form: Form | None) -> tuple[str, float, float]:
        """The kernel of the product, microseconds of the whole matmul, and of its quantisation among them."""
        step = self._step(sizes, rows, form)
        quantize = [choice for choice in step if choice.name == "quantize"]
        alone = self.us(quantize) if quantize else 0.0
        return kernel_of(step[-1]), self.us(step), alone

    def weight_bytes(self, sizes: Sizes, form: Form | None) -> int:
        """Of one layer, with its scales."""
        return self._weights[sizes, form][0].n_bytes

    def read_rate(self) -> float:
        """Bytes a microsecond."""
        found = reads(self._device, self._stream, lambda *work: (time_us(*work), None))
        return max(ceiling.amount / ceiling.us for ceiling in found)

    def us(self, step: LoweredStep, before: LoweredStep | None = None) -> float:
        """`before` runs once, ahead of what is timed."""
        return replayed_us(self._launcher, self._stream, step, b"", before) / self._layers

    def close(self) -> None:
        for owned in (self._cublas, self._clock, self._kernels, self._stream, self._memory, self._device):
            owned.close()  # type: ignore[attr-defined]


def table(bench: Bench, rows: list[int]) -> Iterator[str]:
    read_rate = bench.read_rate()
    yield f"reads alone: {read_rate / 1e6:.2f} TB/s"
    yield (
        "rows | matmul | type | kernel | us | of it quantisation | TFLOP/s | TB/s | of the read rate | "
        "bf16 / this"
    )
    for n in rows:
        totals: dict[str, float] = {}
        for sizes in bench.sizes:
            bf16 = 0.0
            for name, form in bench.forms.items():
                kernel, us, quantisation = bench.time(sizes, n, form)
                bf16 = bf16 or us
                totals[name] = totals.get(name, 0.0) + us
                read = bench.weight_bytes(sizes, form) / us
                rates = f"{sizes.flops(n) / us / 1e6:.0f} | {read / 1e6:.2f} | {read / read_rate:.2f}"
                yield (
                    f"{n} | {sizes.role.value} | {name} | {kernel} | {us:.1f} | {quantisation:.1f} | "
                    f"{rates} | {bf16 / us:.2f}"
                )
        all_flops = sum(sizes.flops(n) for sizes in bench.sizes)
        for (name, us), form in zip(totals.items(), bench.forms.values(), strict=True):
            read = sum(bench.weight_bytes(sizes, form) for sizes in bench.sizes) / us
            rates = f"{all_flops / us / 1e6:.0f} | {read / 1e6:.2f} | {read / read_rate:.2f}"
            yield f"{n} | all | {name} | | {us:.1f} | | {rates} | {totals['bf16'] / us:.2f}"


def table_of_cuts(bench: Bench, rows: list[int]) -> Iterator[str]:
    for few in (True, False):
        if wanted := [n for n in rows if (n <= SKINNY_MAX_ROWS) == few]:
            yield HEAD_OF_FEW if few else HEAD_OF_MANY
        for n in wanted:
            for sizes in bench.sizes:
                for cut in bench.cuts(sizes, n):
                    us = bench.us(cut.step, cut.before)
                    yield f"{n} | {sizes.role.value} | {row_of_cut(bench, cut, sizes, n, us)}"


def row_of_cut(bench: Bench, timed: TimedCut, sizes: Sizes, rows: int, us: float) -> str:
    cut, form = timed.cut, QUANTIZATIONS[timed.name]
    mark = "*" if cut == bench.chosen(sizes, rows, form) else ""
    if isinstance(cut, SkinnyCut):
        slots = f"{cut.panels} | {cut.w_slots} | {cut.x_slots} | {cut.shared_bytes >> 10}"
        return f"{cut.tile_rows} | {cut.splits} | {cut.n_tiles * cut.splits} | {slots} | {us:.1f} | {mark}"
    expected = bench.expected_us(cut, sizes, form)
    shape = f"{timed.name} | {cut.params.columns} | {cut.splits} | {cut.params.tiles * cut.splits}"
    return f"{shape} | {us:.1f} | {sizes.flops(rows) / us / 1e6:.0f} | {expected:.1f} | {mark}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="llama-3-8b", help="a shape of scripts/bench/shapes")
    parser.add_argument("--rows", type=int, nargs="+", default=[128, 256, 512, 1024, 2048, 8192])
    parser.add_argument("--cuts", action="store_true", help="time every way to cut the products of fp8")
    parser.add_argument("--layers", type=int, default=LAYERS, help="whose matrices follow each other")
    parser.add_argument("--forms", nargs="+", choices=list(ROUNDINGS), default=list(QUANTIZATIONS))
    arguments = parser.parse_args()
    config = shape_config(arguments.model)
    bench = Bench(config, arguments.rows, arguments.cuts, arguments.layers, arguments.forms)
    for line in (table_of_cuts if arguments.cuts else table)(bench, arguments.rows):
        print(line, flush=True)
    bench.close()


if __name__ == "__main__":
    main()
