#!/usr/bin/env python3
"""What speculation does to latencies in service: HTTP, frontends, Poisson arrivals, with drafts and without.

    python scripts/bench/in_service.py --model llama-3-8b --rates 12,32,54 --ways none 0.8,0.7,0.6 edits=0.9
    python scripts/bench/in_service.py --model llama-3-8b --rates 32 --stop-at 32 --ways none 0.8,0.7,0.6

A model is a directory, or a name of scripts/bench/shapes with random weights of that shape. There is one
backend without the flag of speculation, for the way `none`, and one with it for all others. Each is started
once, and what it has taken is recorded: time until it is ready, memory. Lengths are lognormal, and the same
requests arrive in each way at the same times. A window is one rate in one way. The rates of --stop-at have a
second window, during which the backend's process stands still (SIGSTOP): on a GPU that changes nothing.

A row is what `blink bench serve` measures in a window, with the gaps between steps and the longest turn of
the scheduler's loop. Gaps are those of the window's last 4,096 steps, by the trace; the turn is the longest
since the way began. `no_worse` compares TPOT p99 with the way `none` at the same rate.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.origin import origin  # noqa: E402
from bench.served import Look, Served, gaps_us  # noqa: E402
from bench.servers import make_model  # noqa: E402
from bench.shape import SHAPES  # noqa: E402
from bench.steps import line_of  # noqa: E402
from bench.ways import FORMS, Way, config_for, parse_way  # noqa: E402

from blink.bench import serve  # noqa: E402
from blink.bench.fleet import Fleet  # noqa: E402
from blink.bench.loads import Load, loads  # noqa: E402
from blink.bench.options import ServeOptions, many, rate  # noqa: E402
from blink.bench.prompts import Prompts  # noqa: E402
from blink.bench.records import Target  # noqa: E402
from blink.bench.trace import lengths  # noqa: E402
from blink.flags import checked  # noqa: E402
from blink.sizes import parse_bytes  # noqa: E402
from gpu_backend.models.quantization import ROUNDINGS  # noqa: E402
from gpu_backend.options import BackendOptions  # noqa: E402

LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms")
SHOWN = ("n", "p50", "p99")


def options_of(arguments: argparse.Namespace, directory: Path, ways: Sequence[Way]) -> BackendOptions:
    """Of the backend for these ways."""
    return BackendOptions(
        directory,
        f"in-service-{os.getpid()}",
        device=arguments.device,
        leases=arguments.frontends,
        random_weights=arguments.random_weights,
        quantization=arguments.quantization,
        max_batch=arguments.max_batch,
        max_context=arguments.input.high + arguments.output.high + 64,
        kv_memory=arguments.kv_memory,
        speculative_config=config_for([way for _, way in ways]),
    )


def load_of(arguments: argparse.Namespace) -> ServeOptions:
    return ServeOptions(
        rate=arguments.rates,
        duration_s=arguments.window,
        drop=arguments.drop,
        input=arguments.input,
        output=arguments.output,
        seed=arguments.seed,
    )


def latencies(point: dict[str, Any]) -> dict[str, float | None]:
    """Those of SHOWN, of what `blink bench serve` has measured in one window."""
    return {
        f"{name.removesuffix('_ms')}_{part}{'' if part == 'n' else '_ms'}": (point[name] or {}).get(part)
        for name in LATENCIES
        for part in SHOWN
    }


def steps_between(before: Look, after: Look) -> dict[str, Any]:
    """What the scheduler did in a window. `gaps_n` is 0 where no gap is known, and their percentiles None."""
    ran = {name: after.stats[name] - before.stats[name] for name in before.stats}
    gaps = gaps_us(after.trace, before.stats["steps"], after.stats["steps"])
    p50, p99 = np.percentile(gaps, [50, 99]) if len(gaps) else (None, None)
    return {
        "steps": ran["steps"],
        "scheduler_tokens": ran["tokens"],
        "draft_tokens": ran["draft_tokens"],
        "accepted": ran["accepted_tokens"] / max(1, ran["draft_tokens"]),
        "preempted": ran["preempted"],
        "gaps_n": len(gaps),
        "gap_p50_us": p50,
        "gap_p99_us": p99,
        "longest_turn_us": after.stats["longest_turn_ns"] / 1e3,
    }


def window(
    served: Served, fleet: Fleet, load: Load, options: ServeOptions, is_stopped: bool
) -> dict[str, Any]:
    """One rate once, with a backend that is stopped or not."""
    before = served.look()
    with served.stopped() if is_stopped else contextlib.nullcontext():
        point = serve.window(fleet, load, options, None)
    return {
        "backend_stopped": is_stopped,
        "requests": point["requests_complete"],
        "failed": point["requests_failed"],
        "tokens_per_s": point["output_tokens_per_s"],
        "tokens_per_chunk": point["tokens_per_chunk"],
        **latencies(point),
        **steps_between(before, served.look()),
        "client_late_p99_ms": point["client"]["send_late_p99_ms"],
        "client_is_bottleneck": point["client"]["bottleneck"],
    }


def rows_of(served: Served, way: Way, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Of one way, by rate, behind a warm-up."""
    served.change(way[1])
    options = load_of(arguments)
    with served.frontends(arguments.frontends) as port:
        target = Target("127.0.0.1", port, "/v1/completions", "m", None)
        with Fleet(arguments.clients, target, Prompts(options.seed, *options.tokens)) as fleet:
            serve.require_success(fleet, options)
            for load in loads(options):
                for is_stopped in (False, True) if load.rate in arguments.stop_at else (False,):
                    row = window(served, fleet, load, options, is_stopped)
                    yield {"way": way[0], "rate": load.rate, **row}


def shares(row: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """A row's figures as shares of another's; None where one of the two has none."""
    return {
        name: row[name] / base[name] if row[name] and base[name] else None
        for name in ("tpot_p50_ms", "tpot_p99_ms", "itl_p99_ms", "ttft_p99_ms", "tokens_per_s")
    }


def compared(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each row beside the one of the way `none`, and each with a stopped backend beside the one without."""
    found = []
    known = {(row["way"], row["rate"], row["backend_stopped"]): row for row in rows}
    for (way, per_s, is_stopped), row in known.items():
        named = {"way": way, "rate": per_s, "backend_stopped": is_stopped}
        if way != "none" and (base := known.get(("none", per_s, is_stopped))):
            against = shares(row, base)
            tpot = against["tpot_p99_ms"]
            found.append({**named, "against": "none", **against, "no_worse": tpot is None or tpot <= 1.0})
        if is_stopped and (base := known.get((way, per_s, False))):
            found.append({**named, "against": "backend not stopped", **shares(row, base)})
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--quantization", choices=tuple(ROUNDINGS))
    parser.add_argument("--ways", nargs="+", type=checked(parse_way), required=True, help=FORMS)
    parser.add_argument(
        "--rates", type=checked(many(rate)), required=True, metavar="R[,R...]", help="requests/s"
    )
    parser.add_argument("--input", type=checked(lengths), default="256:0.8:16-1024", metavar="LENGTHS")
    parser.add_argument("--output", type=checked(lengths), default="96:0.6:16-256", metavar="LENGTHS")
    parser.add_argument("--window", type=float, default=6.0, metavar="SECONDS")
    parser.add_argument("--drop", type=float, default=0.15, help="share of a window before it counts")
    parser.add_argument(
        "--stop-at", type=checked(many(rate)), default=(), metavar="R[,R...]",
        help="rates that are measured with a stopped backend, too",
    )  # fmt: skip
    parser.add_argument("--frontends", type=int, default=2)
    parser.add_argument("--clients", type=int, default=2, help="processes that make the load")
    parser.add_argument("--max-batch", type=int, default=128)
    parser.add_argument("--kv-memory", type=checked(parse_bytes), default="16GiB", metavar="SIZE")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commit", help="recorded with the results (default: what git says)")
    parser.add_argument("--out", type=Path, help="a JSON file")
    arguments = parser.parse_args()
    if arguments.stop_at and arguments.device == "cpu":
        parser.error("--stop-at needs a GPU: the emulated scheduler is part of the backend's process")
    if stray := set(arguments.stop_at) - set(arguments.rates):
        parser.error(f"--stop-at: {', '.join(f'{one:g}' for one in stray)} is not among --rates")
    return arguments


def main() -> int:
    arguments = parse()
    rows: list[dict[str, Any]] = []
    backends: list[dict[str, Any]] = []
    plain = [way for way in arguments.ways if not way[1].max_drafts]
    drafting = [way for way in arguments.ways if way[1].max_drafts]
    with tempfile.TemporaryDirectory() as scratch:
        shape, directory = SHAPES / f"{arguments.model}.json", Path(arguments.model)
        arguments.random_weights = shape.exists()
        if shape.exists():
            directory = make_model(shape, Path(scratch, arguments.model))
        for ways in filter(None, (plain, drafting)):
            with Served(options_of(arguments, directory, ways)) as served:
                backends.append({"speculates": ways is drafting, **asdict(served.started)})
                print(line_of(backends[-1]), flush=True)
                for way in ways:
                    for row in rows_of(served, way, arguments):
                        rows.append(row)
                        print(line_of(row), flush=True)
    comparisons = compared(rows)
    for comparison in comparisons:
        print(line_of(comparison))
    if arguments.out:
        record = {
            **origin("speculation in service", backends[0]["machine"], arguments.commit),
            "model": directory.name,
            "quantization": arguments.quantization,
            "input": str(arguments.input),
            "output": str(arguments.output),
            "window_s": arguments.window,
            "frontends": arguments.frontends,
            "max_batch": arguments.max_batch,
            "backends": backends,
            "rows": rows,
            "compared": comparisons,
        }
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if any(row["failed"] for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
