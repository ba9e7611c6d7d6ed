#!/usr/bin/env python3
"""Microseconds of each kernel of a mixture of experts, per layer, and the rate at which weights are read.

    python scripts/bench/experts.py --model qwen3-30b-a3b --tokens 1 8 32 64 2048

Random weights and tokens, so routing is nearly uniform. Each kernel is replayed over the different weights
of --layers layers, which do not fit into the L2 cache together; "floor" is the bytes of the chosen experts at
4.59 TB/s, the rate of one kernel that does nothing but read (H200).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from gpu_backend.abi import StepKind  # noqa: E402
from gpu_backend.batch import allocate_batch  # noqa: E402
from gpu_backend.cuda.cublas import WORKSPACE_BYTES, Cublas  # noqa: E402
from gpu_backend.cuda.driver import Device, Stream, api  # noqa: E402
from gpu_backend.cuda.graph import Graph  # noqa: E402
from gpu_backend.cuda.kernels import Kernels  # noqa: E402
from gpu_backend.cuda.memory import DeviceMemory  # noqa: E402
from gpu_backend.engine.base import Limits, Shape  # noqa: E402
from gpu_backend.engine.native_step import Activations, NativeStep  # noqa: E402
from gpu_backend.engine.native_weights import RandomWeights, WeightLoader  # noqa: E402
from gpu_backend.engine.sizing import activation_bytes, streams_experts  # noqa: E402
from gpu_backend.model.config import ModelConfig  # noqa: E402

READ_TB_S = 4.59
REPLAYS = 20


class Only:
    """Launches one op of a step and leaves out the others; None launches all."""

    def __init__(self, real: Any, op: str | None) -> None:
        self._real, self._op = real, op

    def __getitem__(self, op: str) -> Any:
        return self._real[op] if self._op in (None, op) else self

    def launch(self, *_: Any, **__: Any) -> None:
        pass

    def linear(self, *arguments: Any) -> None:
        if self._op in (None, "router"):
            self._real.linear(*arguments)


class Bench:
    """The mixtures of a model's layers, for any number of tokens up to `most`."""

    def __init__(self, config: ModelConfig, most: int) -> None:
        assert config.experts is not None
        self.config, self.experts = config, config.experts
        self.device, self.stream = Device(), Stream()
        attribute = api().CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        self.processors = self.device.attribute(attribute)
        self.memory = DeviceMemory(self.device)
        self.kernels = Kernels(self.device.arch, config)
        self.cublas = Cublas(self.stream, self.memory.allocate(WORKSPACE_BYTES))
        load = (self.memory, self.stream, self.kernels, config, RandomWeights(1), lambda *_: None)
        self.weights = WeightLoader(*load).load()
        shapes = [Shape(StepKind.DECODE, n, 1) for n in (1, most)]
        self.limits = Limits(1, 16, most, 1, 16, 1)
        batch = allocate_batch(self.memory, self.limits, shapes, config.vocab_size, ())
        self.tables, self.sets = np.asarray(batch.tables).tobytes(), np.asarray(batch.step_sets)
        sizes = activation_bytes(config, shapes, 16, self.processors)
        self.buffers = Activations(**{name: self.memory.allocate(size) for name, size in sizes.items()})
        x = (self.buffers.normed, most * config.hidden, 7, 0.0, 1.0)
        self.kernels["random"].launch((256, 1, 1), (256, 1, 1), self.stream, *x)

    def us_per_layer(self, op: str | None, tokens: int) -> float:
        kernels: Any = Only(self.kernels, op)
        cublas: Any = Only(self.cublas, op)
        buffers = (self.stream, self.weights, self.buffers, 0, self.processors, None)
        step = NativeStep(self.config, self.limits, self.tables, kernels, cublas, *buffers)
        graph = Graph()
        with graph.capture(self.stream):
            for layer in self.weights.layers:
                step._mixture(Shape(StepKind.DECODE, tokens, 1), self.sets[0].tobytes(), layer)
        graph.instantiate(self.stream)
        start = 0.0
        for n in (2, REPLAYS):
            start = time.monotonic()
            for _ in range(n):
                graph.launch(self.stream)
            self.stream.synchronize()
        seconds = time.monotonic() - start
        graph.close()
        return seconds / REPLAYS / len(self.weights.layers) * 1e6

    def measure(self, tokens: int) -> None:
        whole = self.us_per_layer(None, tokens)
        n = tokens * self.experts.per_token
        chosen = len(np.unique(np.frombuffer(self.memory.read(self.buffers.expert_choice, 4 * n), np.uint32)))
        matrix = 2 * chosen * self.experts.intermediate * self.config.hidden
        way = "stream" if streams_experts(self.experts, tokens) else "tiled"
        floor = 3 * matrix / READ_TB_S / 1e6
        print(f"tokens={tokens} {way} experts={chosen} whole_us={whole:.1f} floor_us={floor:.1f}", end="")
        reads = {f"expert_{way}_gate_up": 2 * matrix, f"expert_{way}_down": matrix}
        for op in ("router", "route", "expert_plan", *reads, "expert_sum"):
            us = self.us_per_layer(op, tokens)
            print(f" {op}={us:.1f}", end=f"({reads[op] / us / 1e6:.2f}TB/s)" if op in reads else "")
        print(flush=True)

    def close(self) -> None:
        self.cublas.close()
        self.kernels.close()
        self.memory.close()
        self.stream.close()
        self.device.close()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="qwen3-30b-a3b", help="a name of scripts/bench/shapes")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64, 128, 512, 2048])
    parser.add_argument("--layers", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        shape = ROOT / "scripts" / "bench" / "shapes" / f"{options.model}.json"
        shutil.copy(shape, Path(scratch) / "config.json")
        config = ModelConfig.from_directory(Path(scratch))
    bench = Bench(replace(config, n_layers=options.layers), max(options.tokens))
    for tokens in options.tokens:
        bench.measure(tokens)
    bench.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
