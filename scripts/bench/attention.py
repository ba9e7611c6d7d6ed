#!/usr/bin/env python3
"""Attention with keys and values in fp8, beside those in halves.

    scripts/bench/attention.py --model llama-3-8b --rows 1 8 32 64 --keys 1024 8192 --prompts 1024 8192

Random numbers. Rows that decode: RoPE, the KV write and attention of one new token a row, as a step launches
them, in a chain of so many layers that no layer's keys are in L2 when it comes. Its plan is made before. With
--drafts, a row has so many tokens beside that one, as in a step that verifies them.
"of reads": of the rate of a kernel that only reads (ceilings.py). Prompts: attention of one prompt from its
first token on, whose keys and values are in the cache.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.cache_fill import fill_cache  # noqa: E402
from bench.ceilings import reads, time_us  # noqa: E402
from bench.replay import replayed_us  # noqa: E402
from bench.shape import shape_config  # noqa: E402

from gpu_backend import abi  # noqa: E402
from gpu_backend.arithmetic import ceil_div  # noqa: E402
from gpu_backend.cuda.driver import Device, Stream  # noqa: E402
from gpu_backend.cuda.memory import DeviceMemory  # noqa: E402
from gpu_backend.cuda.tensor_map import cache_map  # noqa: E402
from gpu_backend.element import Element, compute_element  # noqa: E402
from gpu_backend.engines.native.kernels import Kernels  # noqa: E402
from gpu_backend.engines.native.launcher import StepLauncher  # noqa: E402
from gpu_backend.engines.native.lowering import buffer_bytes, kernel_names  # noqa: E402
from gpu_backend.engines.native.model import heads_of, target_of  # noqa: E402
from gpu_backend.models.description import Model  # noqa: E402
from gpu_backend.models.half import half_bits  # noqa: E402
from gpu_backend.ops.attention import (  # noqa: E402
    DecodeAttention,
    DecodePlan,
    KvScales,
    LayerAttention,
    PrefillAttention,
    PrefillPlan,
    Reach,
)
from gpu_backend.ops.candidate import Choice  # noqa: E402
from gpu_backend.ops.choice import choose  # noqa: E402
from gpu_backend.ops.matrix import Buffer, KvCache, Matrix  # noqa: E402

PAGE = 16
BEYOND_L2 = 256 << 20  # bytes of keys and values that a chain reads at least
FEWEST_LAYERS = 4
FP8_SCALES = KvScales(0.01, 0.01)
LoweredStep = list[Choice]


@dataclass(frozen=True)
class Case:
    """`rows` that decode with `keys` in the cache each, and `drafts` of each row's next tokens, or one prompt
    of `keys` tokens if there are no rows."""

    rows: int
    keys: int
    drafts: int = 0

    @property
    def sequences(self) -> int:
        return max(self.rows, 1)

    @property
    def tokens(self) -> int:
        return self.rows * (1 + self.drafts) or self.keys

    def positions(self) -> list[int]:
        own = list(range(self.keys, self.keys + 1 + self.drafts))
        return own * self.rows if self.rows else list(range(self.keys))


@dataclass(frozen=True)
class Timed:
    """Of one layer."""

    kernel: str
    us: float
    bytes: int
    flops: float


class Bench:
    def __init__(self, config: Model) -> None:
        self.device, self._stream = Device(), Stream()
        self._config, self._heads = config, heads_of(config)
        self.half, self._target = (
            compute_element(config.dtype),
            target_of(config, self.device.chip),
        )
        measure = reads(self.device, self._stream, lambda enqueue, wait: (time_us(enqueue, wait), None))
        self.read_tb_s = measure[0].tera_per_s

    def time(self, case: Case, element: Element) -> Timed:
        memory = DeviceMemory(self.device)
        heads, pages = self._heads, case.sequences * ceil_div(case.keys + 1 + case.drafts, PAGE)
        token_bytes = 2 * heads.kv * heads.dim * element.n_bytes
        layers = max(FEWEST_LAYERS, ceil_div(BEYOND_L2, case.sequences * case.keys * token_bytes))
        cache = KvCache(layers, pages, PAGE, heads.kv, heads.dim, element)
        cache = replace(cache, address=memory.allocate(cache.n_bytes))
        fill_cache(memory, cache.address, cache.n_bytes, element, FP8_SCALES.key)
        maps = [cache_map(cache.keys(i), cache.layer_bytes, cache.row_bytes) for i in range(layers)]
        cache = replace(cache, maps=_upload(memory, np.frombuffer(b"".join(maps), np.uint8)))
        before, chain = self._steps(memory, case, cache)
        steps = [before, chain]
        kernels = Kernels(self.device.arch, kernel_names(steps), self.half)
        addresses = {name: memory.allocate(size) for name, size in buffer_bytes(steps).items()}
        queries = np.random.default_rng(1).standard_normal((case.tokens, heads.width), np.float32)
        in_float16 = element is Element.FP8 and not case.rows  # as RoPE leaves those of prompts
        bits = half_bits(queries, "float32", "float16" if in_float16 else self.half.dtype)
        memory.write(addresses["qkv"], bits.data.cast("B"))
        nothing: Any = None
        step_set, tables = self._step(memory, case, pages)
        on = kernels, nothing, nothing, self._stream, addresses, tables
        us = replayed_us(StepLauncher(*on), self._stream, chain, step_set, before) / layers
        for owned in (kernels, memory):
            owned.close()  # type: ignore[attr-defined]
        pairs = case.rows * (1 + case.drafts) * case.keys or case.keys * (case.keys + 1) / 2
        flops = 4.0 * pairs * heads.q * heads.dim
        return Timed(chain[-1].name, us, case.sequences * case.keys * token_bytes, flops)

    def _steps(self, memory: DeviceMemory, case: Case, cache: KvCache) -> tuple[LoweredStep, LoweredStep]:
        """What makes the plan, and attention of all layers."""
        heads = self._heads
        turns = np.stack([10000.0 ** (-np.arange(0, heads.dim, 2) / heads.dim), np.ones(heads.dim // 2)], 1)
        table = Matrix(1, heads.dim, Element.FP32, _upload(memory, turns.astype(np.float32)))
        reach = Reach(0, table, window=None)
        qkv = Buffer("qkv", case.tokens, heads.width, self.half)
        out = Buffer("attention", case.tokens, heads.q * heads.dim, self.half)
        of = [
            LayerAttention(heads, reach, i, cache, qkv, out, None, None, 1e-6, None, FP8_SCALES)
            for i in range(cache.layers)
        ]
        if case.rows:
            verifies = case.drafts > 0
            plan = choose(DecodePlan(case.tokens, False, heads, reach, verifies), self._target)
            attend = [DecodeAttention(case.tokens, False, layer, verifies) for layer in of]
            return [plan], [choose(op, self._target) for op in attend]
        plan = choose(PrefillPlan(case.keys, 1, heads), self._target)
        return [plan], [choose(PrefillAttention(case.keys, layer, False), self._target) for layer in of]

    def _step(self, memory: DeviceMemory, case: Case, pages: int) -> tuple[bytes, bytes]:
        head = np.zeros(1, abi.StepHead)
        head["n_tokens"] = case.tokens
        head["batch_size"], head["n_decode"] = (case.tokens, case.tokens) if case.rows else (1, 0)
        step_set, tables = np.zeros((), abi.StepSet), np.zeros((), abi.Tables)
        tokens = np.arange(case.tokens)
        sequences = tokens // (1 + case.drafts) if case.rows else np.zeros(case.tokens)
        values = {
            "token_sequence": sequences,
            "token_position": case.positions(),
            "batch_sequence": sequences,
            "batch_first": sequences * (1 + case.drafts),
            "batch_last": tokens if case.rows else [case.tokens - 1],
        }
        step_set["head"] = _upload(memory, head)
        for name, value in values.items():
            step_set[name] = _upload(memory, np.asarray(value, np.uint32))
        tables["block_table"] = _upload(memory, np.random.default_rng(2).permutation(pages).astype(np.uint32))
        tables["page_size"], tables["pages_per_sequence"] = PAGE, pages // case.sequences
        return step_set.tobytes(), tables.tobytes()

    def close(self) -> None:
        self._stream.close()
        self.device.close()


def _upload(memory: DeviceMemory, values: np.ndarray[Any, Any]) -> int:
    address = memory.allocate(values.nbytes)
    memory.write(address, memoryview(np.ascontiguousarray(values).view(np.uint8)).cast("B"))
    return address


def table(bench: Bench, cases: Sequence[Case]) -> Iterator[str]:
    yield "rows | drafts | keys | cache | kernel | us | GB/s | of reads | TFLOP/s | halves / this"
    for case in cases:
        halves = 0.0
        for element in (bench.half, Element.FP8):
            timed = bench.time(case, element)
            halves = halves or timed.us
            rate = timed.bytes / timed.us / 1e3
            moved = f"{rate:.0f} | {rate / bench.read_tb_s / 1e3:.2f} | " if case.rows else " | | "
            rows = f"{case.rows} | {case.drafts}" if case.rows else "prompt | "
            what = f"{rows} | {case.keys} | {element.dtype} | {timed.kernel}"
            yield (
                f"{what} | {timed.us:.2f} | {moved}"
                f"{timed.flops / timed.us / 1e6:.0f} | {halves / timed.us:.2f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="llama-3-8b", help="a shape of scripts/bench/shapes")
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 8, 32, 64], help="that decode")
    parser.add_argument("--drafts", type=int, nargs="+", default=[0], help="beside each row")
    parser.add_argument("--keys", type=int, nargs="+", default=[1024, 8192], help="of each row")
    parser.add_argument("--prompts", type=int, nargs="*", default=[1024, 8192], metavar="TOKENS")
    arguments = parser.parse_args()
    cases = [
        Case(rows, keys, drafts)
        for keys in arguments.keys
        for rows in arguments.rows
        for drafts in arguments.drafts
    ]
    cases += [Case(0, tokens) for tokens in arguments.prompts]
    bench = Bench(shape_config(arguments.model))
    print(f"{bench.device.name}: {bench.read_tb_s:.2f} TB/s of reads")
    for line in table(bench, cases):
        print(line, flush=True)
    bench.close()


if __name__ == "__main__":
    main()
