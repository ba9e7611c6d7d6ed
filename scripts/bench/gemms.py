#!/usr/bin/env python3
"""Ways to multiply a few rows with a model's matrices, against the bytes that they must read: who wins where.

    scripts/bench/gemms.py --model llama-3-8b --rows 1 8 32

A chain of GEMMs over different weights, more of them than L2 holds, is captured and replayed: programmatic
launches (E7) for our kernels, plain for cuBLAS. `layers` is a step without attention and sampling. The
ceiling is what one kernel reads that does nothing else.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.ceilings import graph_us, read_tb_s  # noqa: E402

from gpu_backend.cuda import kernels as kernel_table  # noqa: E402
from gpu_backend.cuda.compile import compile_templates, source_root  # noqa: E402
from gpu_backend.cuda.cublas import R_16BF, R_32F, WORKSPACE_BYTES, Cublas  # noqa: E402
from gpu_backend.cuda.driver import Device, Kernel, Module, Stream, api  # noqa: E402
from gpu_backend.cuda.memory import DeviceMemory  # noqa: E402
from gpu_backend.engine import native_step  # noqa: E402
from gpu_backend.engine.native_step import row_block  # noqa: E402
from gpu_backend.engine.sizing import ceil_div  # noqa: E402
from gpu_backend.model.config import ModelConfig  # noqa: E402

CHAIN_BYTES = 1 << 30  # of weights in one chain: far more than L2
MAX_ROWS = 64
RANDOM_GRID = ((1024, 1, 1), (256, 1, 1))


class Bench:
    """The model's matrices with random weights, and kernels to multiply with."""

    def __init__(self, device: Device, config: ModelConfig, n_layers: int) -> None:
        self.device = device
        self.config = config
        self.stream = Stream()
        self.memory = DeviceMemory(device)
        self.cublas = Cublas(self.stream, self.memory.allocate(WORKSPACE_BYTES))
        self.n_multiprocessors = device.attribute(
            api().CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        )
        self.load()
        heads, kv_heads, head_dim = config.n_heads, config.n_kv_heads, config.head_dim
        hidden, inter = config.hidden, config.intermediate
        # name: n_in, n_out, what becomes of the product
        self.matrices = {
            "qkv": (hidden, (heads + 2 * kv_heads) * head_dim, "half"),
            "o": (heads * head_dim, hidden, "add"),
            "gate_up": (hidden, inter, "silu"),
            "down": (inter, hidden, "add"),
            "head": (hidden, config.vocab_size, "float"),
        }
        self.weights = {
            name: [self.fill(self.bytes(name)) for _ in range(2 if name == "head" else n_layers)]
            for name in self.matrices
        }
        self.norm = self.fill(2 * hidden)
        self.residual = self.memory.allocate(4 * MAX_ROWS * hidden)
        widest = max(2 * inter, 2 * config.vocab_size, 4 * hidden)
        self.inputs = self.fill(2 * MAX_ROWS * max(inter, heads * head_dim, hidden))
        self.outputs = self.memory.allocate(2 * MAX_ROWS * widest)

    def load(self) -> None:
        names = kernel_table.kernel_names(self.config)
        wanted = {
            op: name
            for op, name in names.items()
            if "linear" in op or op in ("random", "rmsnorm", "silu_mul")
        }
        source = source_root() / "kernels" / "engine.cu"
        cubin, symbols = compile_templates(source, self.device.arch, list(wanted.values()))
        module = Module(cubin)
        self.kernels: dict[str, Kernel] = {op: module.kernel(symbols[name]) for op, name in wanted.items()}

    def bytes(self, name: str) -> int:
        n_in, n_out, output = self.matrices[name]
        return 2 * n_in * n_out * (2 if output == "silu" else 1)

    def fill(self, n_bytes: int) -> int:
        address = self.memory.allocate(n_bytes)
        self.kernels["random"].launch(*RANDOM_GRID, self.stream, address, n_bytes // 2, address, 0.0, 0.02)
        self.stream.synchronize()
        return address

    def multiply(self, name: str, weight: int, rows: int, method: str) -> None:
        n_in, n_out, output = self.matrices[name]
        out = self.residual if output == "add" else self.outputs
        if method == "stream":
            groups = next(n for n in kernel_table.STREAM_GROUPS if 8 * n >= rows)
            tiles = ceil_div(n_out, 8 if output == "silu" else 16)
            grid = (min(tiles, native_step.STREAM_BLOCKS * (self.n_multiprocessors - 1)), 1, 1)
            block = (native_step.STREAM_THREADS, 1, 1)
            arguments = (weight, self.inputs, out, rows, n_in, n_out)
            self.kernels[f"linear_{output}_{groups}"].launch(
                grid, block, self.stream, *arguments, overlap=True
            )
            return
        total = n_out * (2 if output == "silu" else 1)
        types = (R_16BF, R_16BF if output in ("half", "silu") or method == "cublas half" else R_32F)
        add = output == "add" and types[1] == R_32F
        self.cublas.linear(weight, self.inputs, out, rows, n_in, total, *types, add)
        if output == "silu":
            block = row_block(n_out, 256)
            grid = (rows, ceil_div(n_out, 8 * block[0]), 1)
            self.kernels["silu_mul"].launch(
                grid, block, self.stream, self.outputs, self.inputs, n_out, overlap=True
            )

    def normalise(self, rows: int) -> None:
        hidden = self.config.hidden
        arguments = (self.residual, self.norm, 1e-5, self.inputs, hidden)
        self.kernels["rmsnorm"].launch((rows, 1, 1), row_block(hidden), self.stream, *arguments, overlap=True)

    def chain(self, name: str, rows: int, method: str) -> tuple[Callable[[], None], int]:
        n = max(1, min(len(self.weights[name]), CHAIN_BYTES // self.bytes(name)))
        return lambda: [self.multiply(name, w, rows, method) for w in self.weights[name][:n]], n  # type: ignore

    def layers(self, rows: int, method: str) -> Callable[[], None]:
        def enqueue() -> None:
            for layer in range(len(self.weights["qkv"])):
                for name in ("norm", "qkv", "o", "norm", "gate_up", "down"):
                    if name == "norm":
                        self.normalise(rows)
                    else:
                        self.multiply(name, self.weights[name][layer], rows, method)
            self.multiply("head", self.weights["head"][0], rows, method)

        return enqueue


def row(bench: Bench, label: str, rows: list[int], method: str, name: str, ceiling: float) -> str:
    cells = []
    for n in rows:
        if method == "stream" and n > native_step.STREAM_ROWS:
            cells.append(f"{'-':>15}")
            continue
        if name == "layers":
            size = sum(bench.bytes(m) * (1 if m == "head" else len(bench.weights[m])) for m in bench.matrices)
            us = graph_us(bench.stream, bench.layers(n, method))
        else:
            enqueue, count = bench.chain(name, n, method)
            us, size = graph_us(bench.stream, enqueue) / count, bench.bytes(name)
        cells.append(f"{us:8.2f} {size / us / 1e6 / ceiling:5.1%} ")
    return f"{label:16} {name:8}" + "".join(cells)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="llama-3-8b", help="a name of scripts/bench/shapes")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--layers", type=int, default=0, help="fewer than the model has")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        shape = ROOT / "scripts" / "bench" / "shapes" / f"{options.model}.json"
        shutil.copy(shape, Path(scratch) / "config.json")
        config = ModelConfig.from_directory(Path(scratch))
    device = Device()
    bench = Bench(device, config, options.layers or config.n_layers)
    ceiling = read_tb_s(device, bench.stream)
    print(f"{options.model}: read ceiling {ceiling:.2f} TB/s; microseconds and share of the ceiling")
    print(f"{'':25}" + "".join(f"{n:>12} row" for n in options.rows))
    names = [*bench.matrices, "layers"]
    for name in names:
        for method in ("stream", "cublas", "cublas half"):
            if method != "cublas half" or bench.matrices.get(name, ("", "", "add"))[2] == "add":
                print(row(bench, method, options.rows, method, name, ceiling), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
