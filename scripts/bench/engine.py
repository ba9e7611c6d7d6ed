#!/usr/bin/env python3
"""Where the time of a step goes: each of its operations against the least that memory and tensor cores allow.

    scripts/bench/engine.py --model llama-3-8b --rows 1 8 32 64 --context 1000 --prefill 1024 8192
    scripts/bench/engine.py --model llama-3-8b --rows 1 32 --mixed 8x256 64x512 --json out.json --plot plots
    scripts/bench/engine.py --model llama-3-8b --rows 32 64 --mixed 32x256 --sustained 1

Random weights of the model's shape. A mixed step is ROWSxTOKENS, of which all tokens but the rows' are a
prompt's. A step is the engine's own executable, replayed by the host beside a block that takes a
multiprocessor as the scheduler does; an operation is all its launches of that step, captured as a chain and
replayed: as in the step, each reads weights or keys that are not in L2 and may start before the one before it
has ended (E7). A floor is the larger of bytes / read ceiling and operations / matrix rate, both measured in
the same run (ceilings.py). With --sustained, steps and their larger operations also run over and over, which
shows their power, and the clock that it leaves (sustained.py).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.cache_fill import fill_cache  # noqa: E402
from bench.ceilings import kernel_of, products, reads, time_us  # noqa: E402
from bench.operation_names import operation_name  # noqa: E402
from bench.shape import shape_config  # noqa: E402
from bench.step_costs import Costs, Load, Operation, Step  # noqa: E402
from bench.step_report import draw, line, table  # noqa: E402
from bench.sustained import Sustained, sustain  # noqa: E402

from blink.bench.energy import EnergyCounter  # noqa: E402
from gpu_backend.abi import NO_SEQUENCE, StepHead, StepKind  # noqa: E402
from gpu_backend.arithmetic import ceil_div  # noqa: E402
from gpu_backend.cuda.driver import Device, Stream  # noqa: E402
from gpu_backend.cuda.graph import Graph  # noqa: E402
from gpu_backend.cuda.memory import DeviceMemory  # noqa: E402
from gpu_backend.element import Element  # noqa: E402
from gpu_backend.engines.base import Limits, Shape  # noqa: E402
from gpu_backend.engines.batch import allocate_batch  # noqa: E402
from gpu_backend.engines.graph_grid import GraphGrid  # noqa: E402
from gpu_backend.engines.native.engine import NativeEngine  # noqa: E402
from gpu_backend.engines.native.lowering import lower_step  # noqa: E402
from gpu_backend.engines.native.sizing import mixed_share  # noqa: E402
from gpu_backend.engines.native.weights import RandomWeights, enqueue_random  # noqa: E402
from gpu_backend.models.description import Model  # noqa: E402
from gpu_backend.models.quantization import ROUNDINGS  # noqa: E402
from gpu_backend.options import KV_CACHE_DTYPES, caches_fp8  # noqa: E402
from ringbuffer.abi import Descriptor  # noqa: E402

PAGE = 16
LARGER = 0.02  # of a step, from which on an operation is sustained
MOST_SUSTAINED_S = 20.0  # what takes a multiprocessor leaves after 30 (occupy.cu)
CACHE_SEED = 2  # weights have seed 1
OCCUPY = Path(__file__).with_name("occupy.cu")


class Bench:
    """An engine with random weights, and what the GPU can do at most."""

    def __init__(self, config: Model, limits: Limits, sustained_s: float = 0.0) -> None:
        """`sustained_s`: how long steps and operations are to run over and over, 0 for not at all."""
        self.config = config
        self.limits = limits
        self.device = Device()
        self._sustained_s = sustained_s
        self._meter = None
        if sustained_s:
            self._meter = EnergyCounter(UUID(bytes=self.device.uuid()), "--sustained")
        self.stream = Stream()
        self.memory = DeviceMemory(self.device)
        on = self.device, self.stream, self._measure
        self.ceilings = [*reads(*on), products(*on)]
        self.read_tb_s, self.tflops = self.ceilings[0].tera_per_s, self.ceilings[-1].tera_per_s
        self.grid = GraphGrid(limits)
        self.batch = allocate_batch(self.memory, limits, self.grid.shapes, config.vocab_size, ())
        tables: Any = self.batch.tables
        pages = (
            np.random.default_rng(0).permutation(limits.max_batch * limits.pages_per_sequence).astype("<u4")
        )
        self.memory.write(int(tables["block_table"]), pages.tobytes())
        tokens = np.random.default_rng(1).integers(
            0, config.vocab_size, (limits.n_sequences, limits.max_context)
        )
        self.memory.write(
            int(tables["history"]), tokens.astype("<u4").tobytes()
        )  # alike, they would cost less
        params = np.zeros(limits.n_sequences, Descriptor)
        params["repetition_penalty"] = params["top_p"] = 1
        self.memory.write(int(tables["params"]), params.tobytes())
        began = time.monotonic()
        self.engine = NativeEngine(
            self.device, config, RandomWeights(1), limits, self.grid.shapes, self.batch
        )
        self.start_s = time.monotonic() - began
        self._fill_cache()
        self.costs = Costs(config, self.engine.model.cache.element)
        self._occupant = kernel_of(self.device, OCCUPY, "occupy_kernel")
        self._occupant_stream = Stream()
        self._occupant_end = self.memory.allocate(4)

    def _fill_cache(self) -> None:
        """With random keys and values: nothing is timed on zeros."""
        cache, on = self.engine.model.cache, (self.engine.kernels, self.engine._stream)
        if cache.element is Element.FP8:
            fill_cache(self.memory, cache.address, cache.n_bytes, cache.element)
            return
        enqueue_random(*on, cache.address, cache.n_bytes // cache.element.n_bytes, CACHE_SEED, 0.0, 1.0)
        self.engine.synchronize()

    def fill(self, load: Load) -> int:
        """Makes step set 0 a step of id 1, whose gate is open. Returns the index of its shape."""
        step_set: Any = self.batch.step_sets[0]  # type: ignore[index]
        head = np.zeros((), StepHead)
        head["id"], head["n_tokens"], head["batch_size"] = 1, load.tokens, load.batch_slots
        head["n_decode"] = load.rows
        shape_of = {
            StepKind.DECODE: self.grid.decode_shape,
            StepKind.PREFILL: self.grid.prefill_shape,
            StepKind.MIXED: lambda tokens: self.grid.mixed_shape(tokens, load.batch_slots),
        }
        head["shape"] = index = shape_of[load.kind](load.tokens)
        batch_slots = np.arange(load.batch_slots, dtype="<u4")
        own = np.full(load.prompt, load.rows, "<u4")  # the prompt's row
        values = {
            "token_sequence": np.concatenate([batch_slots[: load.rows], own]),
            "token_position": np.concatenate([[load.context] * load.rows, np.arange(load.prompt)]),
            "batch_sequence": batch_slots,
            "batch_first": batch_slots,
            "batch_last": np.append(batch_slots[: load.rows], [load.tokens - 1] * (load.prompt > 0)),
            "batch_emit": np.ones(load.batch_slots),
        }
        padding = self.grid.shapes[index].tokens - load.tokens
        values["token_sequence"] = np.append(values["token_sequence"], [NO_SEQUENCE] * padding)
        self.memory.write(int(step_set["head"]), head.tobytes())
        for name, array in values.items():
            self.memory.write(int(step_set[name]), array.astype("<u4").tobytes())
        return index

    def measure(self, load: Load) -> Step:
        index = self.fill(load)
        shape = self.grid.shapes[index]
        self.engine.run(index, 0)
        us, sustained = self._times(lambda: self.engine.enqueue(index, 0), 0)
        operations = []
        for name, calls in self.record(shape).items():
            n_bytes, flops = (len(calls) * cost for cost in self.costs.of(name, load))
            if name == "megakernel":
                n_bytes, flops = self.costs.step(load)
            floor = self.floor_us(n_bytes, flops)
            times = self._chain_times(calls, LARGER * us)
            operations.append(Operation(name, len(calls), n_bytes, flops, floor, *times))
        return Step(
            load.kind.name.lower(),
            load.tokens,
            load.rows,
            load.context,
            self.floor_us(*self.costs.step(load)),
            us,
            operations,
            sustained,
        )

    def record(self, shape: Shape) -> dict[str, list[Callable[[], None]]]:
        """The step's launches by operation, but for the gate, which orders steps."""
        launcher, step_set = self.engine.launcher, self.engine._sets[0]
        calls: dict[str, list[Callable[[], None]]] = {}
        for choice in lower_step(self.engine.model, shape):
            for work in choice.launches:
                name = operation_name(choice, work, shape.tokens)
                calls.setdefault(name, []).append(partial(launcher.launch, work, step_set))
        return {name: launches for name, launches in calls.items() if name != "gate"}

    def floor_us(self, n_bytes: float, flops: float) -> float:
        return max(n_bytes / self.read_tb_s, flops / self.tflops) / 1e6

    def _chain_times(
        self, calls: list[Callable[[], None]], larger_us: float
    ) -> tuple[float, Sustained | None]:
        graph = Graph()
        stream = self.engine._stream  # the calls' own
        with graph.capture(stream):
            for call in calls:
                call()
        graph.instantiate(stream)
        times = self._times(lambda: graph.launch(stream), larger_us)
        graph.close()
        return times

    def _times(self, enqueue: Callable[[], object], larger_us: float) -> tuple[float, Sustained | None]:
        """With a multiprocessor less, and over and over if it takes longer than `larger_us`."""
        with self._occupied():
            return self._measure(enqueue, self.engine.synchronize, larger_us)

    def _measure(
        self, enqueue: Callable[[], object], wait: Callable[[], None], larger_us: float = 0.0
    ) -> tuple[float, Sustained | None]:
        """Right after a pause, and over and over if it takes longer than `larger_us`."""
        us = time_us(enqueue, wait)
        if self._meter is None or us < larger_us:
            return us, None
        return us, sustain(enqueue, wait, us, self._meter, self._sustained_s)

    @contextlib.contextmanager
    def _occupied(self) -> Iterator[None]:
        """With a multiprocessor less."""
        self.memory.write(self._occupant_end, bytes(4))
        self._occupant.launch((1, 1, 1), (1, 1, 1), self._occupant_stream, self._occupant_end)
        try:
            yield
        finally:
            self.memory.write(self._occupant_end, b"\1\0\0\0")
            self._occupant_stream.synchronize()

    def close(self) -> None:
        self.engine.close()
        self._occupant_stream.close()
        self.memory.close()
        self.device.close()
        if self._meter is not None:
            self._meter.close()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="llama-3-8b", help="a name of scripts/bench/shapes")
    parser.add_argument(
        "--quantization", choices=tuple(ROUNDINGS), help="weights in fp8, by row or block, or in four bits"
    )
    parser.add_argument("--kv-cache-dtype", choices=KV_CACHE_DTYPES, default="auto")
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 8, 16, 32, 64])
    parser.add_argument("--context", type=int, nargs="+", default=[1000])
    parser.add_argument("--prefill", type=int, nargs="*", default=[1024], metavar="TOKENS")
    parser.add_argument("--mixed", nargs="*", default=[], metavar="ROWSxTOKENS")
    parser.add_argument("--sustained", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, metavar="PNG")
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args()
    if not 0 <= options.sustained <= MOST_SUSTAINED_S:
        parser.error(f"--sustained is {options.sustained:g}, it must be 0 to {MOST_SUSTAINED_S:g} seconds")
    return options


def main() -> int:
    options = parse()
    config = shape_config(options.model, options.quantization)
    mixed = [tuple(map(int, text.split("x"))) for text in options.mixed]
    longest = max([*options.prefill, *(n for _, n in mixed), 1])
    context = max([*(c + PAGE for c in options.context), longest])
    rows = max([*options.rows, *(n + 1 for n, _ in mixed), 1])
    pages = rows * ceil_div(context, PAGE)
    share = mixed_share(config)
    in_fp8 = caches_fp8(options.kv_cache_dtype, config)
    limits = Limits(rows, context, longest, min(8, longest), PAGE, pages, share, kv_fp8=in_fp8)
    bench = Bench(config, limits, options.sustained)
    print(f"{options.model}: {len(bench.grid.shapes)} shapes ready after {bench.start_s:.1f} s")
    print("\n".join(map(line, bench.ceilings)))
    wanted = [Load(n, 0, c) for c in options.context for n in options.rows]
    wanted += [Load(0, n, 0) for n in options.prefill]
    wanted += [Load(n, tokens - n, c) for c in options.context for n, tokens in mixed]
    steps = []
    for load in wanted:
        steps.append(bench.measure(load))
        print(table(steps[-1]), flush=True)
    if options.json is not None:
        result = {
            "model": options.model, "quantization": options.quantization,
            "kv_cache": bench.engine.model.cache.element.dtype,
            "commit": options.commit, "gpu": bench.device.name,
            "date": time.strftime("%Y-%m-%d"), "read_tb_s": bench.read_tb_s, "tflops": bench.tflops,
            "ceilings": [asdict(ceiling) for ceiling in bench.ceilings],
            "steps": [asdict(step) for step in steps],
        }  # fmt: skip
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.plot is not None:
        draw(steps, f"{options.model} on {bench.device.name}", options.plot)
    bench.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
