#!/usr/bin/env python3
"""How long KV pages take to come back from host memory, and to be computed: from which length on copies win.

    scripts/bench/page_copies.py --model llama-3-8b --tokens 16 64 128 256 512 2048

Random weights of the model's shape. Both are the engine's own executables, replayed by the host: as many copy
steps as the pages need, in both directions, and as many prefill steps of one prompt, whose earlier tokens are
in the cache. A server waits for one more step when it copies: whatever decodes runs between two copy steps.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.ceilings import time_us  # noqa: E402
from bench.shape import shape_config  # noqa: E402

from gpu_backend.abi import NO_SEQUENCE, StepHead, StepKind  # noqa: E402
from gpu_backend.arithmetic import ceil_div  # noqa: E402
from gpu_backend.cuda.driver import Device  # noqa: E402
from gpu_backend.cuda.memory import DeviceMemory  # noqa: E402
from gpu_backend.engines.base import Limits, Shape  # noqa: E402
from gpu_backend.engines.batch import allocate_batch  # noqa: E402
from gpu_backend.engines.kv_pages import with_host_pages  # noqa: E402
from gpu_backend.engines.native.engine import NativeEngine  # noqa: E402
from gpu_backend.engines.native.sizing import page_bytes  # noqa: E402
from gpu_backend.engines.native.weights import RandomWeights  # noqa: E402
from gpu_backend.models.description import Model  # noqa: E402
from ringbuffer.abi import Descriptor  # noqa: E402

PAGE = 16
LARGEST_STEP = 2048  # tokens of a prompt, as a server has it


@dataclass(frozen=True)
class Result:
    """Microseconds for as many tokens; `steps` copy steps in one direction."""

    tokens: int
    n_bytes: int
    steps: int
    back_us: float
    out_us: float
    compute_us: float


class PageBench:
    """An engine of one row with shapes for prompts of `lengths`, whole pages each."""

    def __init__(self, config: Model, lengths: list[int]) -> None:
        self.pages = max(lengths) // PAGE
        self.chunks = sorted({min(n - at, LARGEST_STEP) for n in lengths for at in range(0, n, LARGEST_STEP)})
        limits = Limits(1, max(lengths) + PAGE, self.chunks[-1], 1, PAGE, self.pages + 1)
        self.page_bytes = page_bytes(config, limits)
        self.limits = with_host_pages(limits, self.page_bytes, self.pages * self.page_bytes)
        prompts = (Shape(StepKind.PREFILL, n, 1) for n in self.chunks)
        self.shapes = (*prompts, Shape(StepKind.COPY, self.limits.copied_pages, 0))
        self.device = Device()
        self.memory = DeviceMemory(self.device)
        self.batch = allocate_batch(self.memory, self.limits, self.shapes, config.vocab_size, ())
        tables: Any = self.batch.tables
        tokens = np.random.default_rng(1).integers(0, config.vocab_size, self.limits.max_context)
        params = np.zeros(1, Descriptor)
        params["repetition_penalty"] = params["top_p"] = 1
        self._write(int(tables["history"]), tokens)
        self._write(int(tables["block_table"]), np.arange(self.pages + 1))
        self.memory.write(int(tables["params"]), params.tobytes())
        on = (self.device, config, RandomWeights(1), self.limits, self.shapes, self.batch)
        self.engine = NativeEngine(*on)

    def measure(self, tokens: int) -> Result:
        n, most = tokens // PAGE, self.limits.copied_pages
        steps = [min(n - at, most) for at in range(0, n, most)]
        back, out = (sum(self._copy_us(count, to_host) for count in steps) for to_host in (False, True))
        chunks = [(at, min(tokens - at, LARGEST_STEP)) for at in range(0, tokens, LARGEST_STEP)]
        compute = sum(self._prefill_us(*chunk) for chunk in chunks)
        return Result(tokens, n * self.page_bytes, len(steps), back, out, compute)

    def _copy_us(self, n: int, to_host: bool) -> float:
        sides = np.arange(n), np.arange(n) + self.limits.total_pages
        here, there = sides if to_host else sides[::-1]
        return self._time(len(self.shapes) - 1, n, 0, token_sequence=here, token_position=there)

    def _prefill_us(self, first: int, n: int) -> float:
        arrays = {"token_sequence": np.zeros(n), "token_position": np.arange(first, first + n)}
        slot = {"batch_sequence": [0], "batch_first": [0], "batch_last": [n - 1], "batch_emit": [1]}
        return self._time(self.chunks.index(n), n, 1, **arrays, **slot)

    def _time(self, shape: int, n: int, batch_size: int, **arrays: Any) -> float:
        """Of step set 0 as a step of id 1, whose gate is open."""
        step_set: Any = self.batch.step_sets[0]  # type: ignore[index]
        head = np.zeros((), StepHead)
        head["id"], head["n_tokens"], head["batch_size"] = 1, n, batch_size
        head["kind"], head["shape"] = self.shapes[shape].kind, shape
        padding = [NO_SEQUENCE] * (self.shapes[shape].tokens - n)
        arrays["token_sequence"] = np.append(arrays["token_sequence"], padding)
        self.memory.write(int(step_set["head"]), head.tobytes())
        for name, values in arrays.items():
            self._write(int(step_set[name]), values)
        return time_us(lambda: self.engine.enqueue(shape, 0), self.engine.synchronize)

    def _write(self, address: int, values: Any) -> None:
        self.memory.write(address, np.asarray(values).astype("<u4").tobytes())

    def close(self) -> None:
        self.engine.close()
        self.memory.close()
        self.device.close()


def report(results: list[Result]) -> str:
    rows = [
        "| tokens | MB | copy steps | back, us | GB/s | out, us | GB/s | computed, us | computed / back |"
    ]
    rows.append("|---|---|---|---|---|---|---|---|---|")
    for r in results:
        speeds = [r.n_bytes / us / 1e3 for us in (r.back_us, r.out_us)]
        figures = (
            f"{r.tokens} | {r.n_bytes / 1e6:.1f} | {r.steps} | {r.back_us:.0f} | {speeds[0]:.1f} | "
            f"{r.out_us:.0f} | {speeds[1]:.1f} | {r.compute_us:.0f} | {r.compute_us / r.back_us:.2f}"
        )
        rows.append(f"| {figures} |")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="llama-3-8b", help="a name of scripts/bench/shapes")
    parser.add_argument("--tokens", type=int, nargs="+", default=[16, 64, 128, 256, 512, 1024, 2048, 4096])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    lengths = sorted({PAGE * ceil_div(n, PAGE) for n in options.tokens if n > 0})
    if not lengths:
        parser.error("--tokens names no length")
    bench = PageBench(shape_config(options.model), lengths)
    results = [bench.measure(n) for n in lengths]
    print(f"{options.model} on {bench.device.name}\n{report(results)}")
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    bench.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
