#!/usr/bin/env python3
"""What a GPU can make of a closed loop at most, from what it was measured to read, multiply and burn.

    scripts/bench/closed_limit.py docs/benchmarks/2026-11-24-h200-engine-c03c904.json --model llama-3-8b

N requests are open at a time, INPUT tokens in and OUTPUT out. Who batches them has to read the weights, and
the keys and values of N rows, for every N tokens of answers, and to multiply every token of answers and of
prompts; for a prompt of a mixture of experts, once, all experts. Limits, in tokens of answers a second:

  memory   what is read at the rate of a bulk copy right after a pause, and products hidden behind it, or the
           other way round
  power    the same, but no more than the GPU's power limit allows, by the energy of bulk copies and of large
           products over and over, each beyond what an idle GPU takes
  in turn  both at their rates over and over, nothing hidden

The JSON is engine.py's, of a run with --sustained, or of several runs by name.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.shape import shape_config  # noqa: E402
from bench.step_costs import Costs, Load  # noqa: E402

from gpu_backend.element import compute_element  # noqa: E402
from gpu_backend.models.description import Model  # noqa: E402
from gpu_backend.models.quantization import ROUNDINGS  # noqa: E402


@dataclass(frozen=True)
class Work:
    """Of one token of an answer: bytes read and floating-point operations."""

    bytes: float
    flops: float


@dataclass(frozen=True)
class Rate:
    """Units/s right after a pause and over and over, and joules a unit then, beyond those of an idle GPU."""

    alone: float
    sustained: float
    joules: float


@dataclass(frozen=True)
class Gpu:
    reads: Rate  # bytes
    products: Rate  # floating-point operations
    limit_w: float
    idle_w: float

    @classmethod
    def of(cls, ceilings: list[dict[str, Any]], limit_w: float, idle_w: float) -> Gpu:
        """From the ceilings of engine.py. Raises ValueError."""
        found = {ceiling["what"]: ceiling for ceiling in ceilings if ceiling["sustained"]}
        if missing := {"copies", "multiplies"} - found.keys():
            raise ValueError(
                f"no {' and no '.join(sorted(missing))} over and over: run engine.py --sustained 1"
            )

        def rate(what: str) -> Rate:
            amount, over = found[what]["amount"], found[what]["sustained"]
            joules = over["us"] * (over["watts"] - idle_w) / amount / 1e6
            return Rate(amount / found[what]["us"] * 1e6, amount / over["us"] * 1e6, joules)

        return cls(rate("copies"), rate("multiplies"), limit_w, idle_w)

    def limits(self, work: Work) -> dict[str, float]:
        """Tokens/s."""
        seconds = max(work.bytes / self.reads.alone, work.flops / self.products.alone)
        joules = work.bytes * self.reads.joules + work.flops * self.products.joules
        powered = joules / (self.limit_w - self.idle_w)
        in_turn = work.bytes / self.reads.sustained + work.flops / self.products.sustained
        return {"memory": 1 / seconds, "power": 1 / max(seconds, powered), "in turn": 1 / in_turn}


def work_of(config: Model, rows: int, n_input: int, n_output: int) -> Work:
    """`rows` requests at a time."""
    costs = Costs(config, compute_element(config.dtype))
    step_bytes, step_flops = costs.step(Load(rows, 0, n_input + n_output // 2))
    prompt_bytes, prompt_flops = costs.step(Load(0, n_input, 0))
    more_bytes = 0.0  # beside sequences that decode, a prompt's step reads experts that they do not need
    if config.experts is not None:
        more_bytes = max(0.0, prompt_bytes - costs.step(Load(rows, 0, 0))[0])
    return Work(step_bytes / rows + more_bytes / n_output, step_flops / rows + prompt_flops / n_output)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="JSON of engine.py, with --sustained")
    parser.add_argument("--model", default="llama-3-8b", help="a name of scripts/bench/shapes")
    parser.add_argument(
        "--quantization", choices=tuple(ROUNDINGS), help="weights in fp8, by row or block, or in four bits"
    )
    parser.add_argument("--concurrency", default="8,32,64", metavar="N,...")
    parser.add_argument("--input", type=int, default=1024, metavar="TOKENS")
    parser.add_argument("--output", type=int, default=256, metavar="TOKENS")
    parser.add_argument("--limit", type=float, default=700.0, metavar="WATTS", help="of the GPU")
    parser.add_argument("--idle", type=float, default=123.0, metavar="WATTS", help="what it takes when idle")
    options = parser.parse_args()
    results = json.loads(options.results.read_text())
    runs = [results] if "ceilings" in results else list(results.values())
    found = (run.get("ceilings", []) for run in runs)
    ceilings = next((each for each in found if any(ceiling["sustained"] for ceiling in each)), [])
    try:
        gpu = Gpu.of(ceilings, options.limit, options.idle)
    except ValueError as error:
        parser.error(f"{options.results}: {error}")
    config = shape_config(options.model, options.quantization)
    for rows in map(int, options.concurrency.split(",")):
        work = work_of(config, rows, options.input, options.output)
        limits = ", ".join(f"{what} {rate:,.0f}" for what, rate in gpu.limits(work).items())
        each = f"{work.bytes / 1e6:.0f} MB and {work.flops / 1e9:.1f} GFLOP a token"
        print(f"{options.model}, {rows} at a time: {each}; tokens/s at most by {limits}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
