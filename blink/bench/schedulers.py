"""blink bench schedulers: what scheduling on the GPU is worth, on the same engine, graphs, policy and ring.

Three host-driven schedulers are the comparison (kernels/scheduler/driven/README.md): blocking; pipelined,
after Photon; async, after Hugging Face's asynchronous batching. Each of them can be slowed down, as their
hosts are native code that does little. Everything arrives through the ring.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import shutil
import string
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blink.bench.scheduler_runs import (
    STRAY_TOKENS,
    Design,
    Round,
    Runs,
    Workload,
    parse_design,
    parse_workload,
    runs_under,
)
from blink.bench.step_figures import predicted_speedup, step_figures, strip, zombie_tax
from blink.bench.tables import table
from blink.files import CheckedPath, writable_directory, writable_file
from blink.flags import checked, count
from blink.model_directory import demo_directory, model_directory
from gpu_backend.backend import Backend
from gpu_backend.options import BackendOptions
from gpu_backend.schedulers.base import SchedulerKind
from nic_frontend.grammar.compiler import compiled
from nic_frontend.grammar.expression import one_of, repeated

DESCRIPTION = """Makespans of bursts, the parts of a decode step, and Photon's cost model, for the scheduler
on the GPU and three on the host. On a CPU all of it is emulated: only comparing the tokens means anything."""
STEP_HEADS = (
    "streams", "scheduler", "forward ms", "sampling ms", "period ms", "busy", "turn us", "host CPU us",
    "zombies", "predicted", "observed", "same",
)  # fmt: skip
SPAN_HEADS = ("workload", "scheduler", "makespan s", "relative", "same")
GRAMMAR_WORDS = 1 << 16  # that one may have; letters take a few dozen
MAKESPANS = "64x128-32,64x512-64,32x1024-128,32x128-256"


def listed(parse: Any) -> Any:
    return lambda text: [parse(part) for part in text.split(",")]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a model directory, 'demo', or a config.json alone, whose weights are then random",
    )
    parser.add_argument("--device", choices=("auto", "gpu", "cpu"), default="auto", help="(default: auto)")
    parser.add_argument(
        "--schedulers",
        type=checked(listed(parse_design)),
        default=[Design(kind) for kind in SchedulerKind],
        metavar="KIND[+US],...",
        help="a host that drives keeps busy for US microseconds more before each step; speed-ups are over "
        f"blocking with as many (default: {','.join(SchedulerKind)})",
    )
    parser.add_argument(
        "--constrained",
        action="store_true",
        help="measure the parts of a step once more, with all answers held to a grammar",
    )
    parser.add_argument(
        "--streams",
        type=checked(listed(count)),
        default=[1, 8, 32],
        metavar="N,...",
        help="sequences that decode, for the parts of a step; the most are the batch (default: 1,8,32)",
    )
    parser.add_argument("--input", type=checked(count), default=512, metavar="TOKENS", help="(default: 512)")
    parser.add_argument("--output", type=checked(count), default=128, metavar="TOKENS", help="(default: 128)")
    parser.add_argument("--rounds", type=checked(count), default=3, help="of everything (default: 3)")
    parser.add_argument(
        "--makespan",
        type=checked(listed(parse_workload)),
        default=MAKESPANS,
        metavar="NxI-O,...",
        help=f"bursts of N requests, I tokens in and O out (default: {MAKESPANS})",
    )
    parser.add_argument("--commit", help="recorded with the results (default: what git says)")
    parser.add_argument(
        "--json", action=CheckedPath, check=writable_file, metavar="FILE", help="where to write the results"
    )
    parser.add_argument(
        "--plot",
        action=CheckedPath,
        check=writable_directory,
        metavar="DIR",
        help="where to draw them (needs matplotlib)",
    )


def main(namespace: argparse.Namespace) -> int:
    if namespace.plot:
        importlib.import_module("matplotlib")  # that it is missing is told now, not after the measurement
    with tempfile.TemporaryDirectory() as scratch, serving(namespace, Path(scratch)) as backend:
        record = {"what": "schedulers", **origin(namespace, backend), **measure(namespace, backend)}
    print(report(record))
    if namespace.json:
        namespace.json.write_text(json.dumps(record, indent=1) + "\n")
    if namespace.plot:
        from blink.bench.timeline import draw

        draw(record, namespace.plot)
    return 0


@contextmanager
def serving(namespace: argparse.Namespace, scratch: Path) -> Iterator[Backend]:
    directory, random = directory_of(namespace.model, scratch)
    streams = [Workload(n, namespace.input, namespace.output) for n in namespace.streams]
    longest = max(workload.tokens for workload in (*streams, *namespace.makespan)) + STRAY_TOKENS
    backend = Backend(
        BackendOptions(
            directory,
            ring=f"bench-{scratch.name}",
            device=namespace.device,
            max_context=longest,
            max_batch=max(namespace.streams),
            random_weights=random,
            scheduler=namespace.schedulers[0].kind,
        )
    )
    backend.start()
    try:
        yield backend
    finally:
        backend.stop(0.0)


def directory_of(model: str, scratch: Path) -> tuple[Path, bool]:
    """The directory to serve, and whether its weights are random."""
    if not model.endswith(".json"):
        return model_directory(model), False
    shutil.copy(model, scratch / "config.json")
    shutil.copy(demo_directory() / "tokenizer.json", scratch)  # never used: prompts are token ids
    return scratch, True


def measure(namespace: argparse.Namespace, backend: Backend) -> dict[str, Any]:
    """Every scheduler in turn. The first one's answers are what the others' are compared with."""
    workloads = [Workload(n, namespace.input, namespace.output) for n in namespace.streams]
    bursts = [Burst(workload) for workload in workloads]
    if namespace.constrained:
        bursts += [Burst(workload, letters()) for workload in workloads]
    spans = [Burst(workload) for workload in namespace.makespan]
    decode: list[dict[str, Any]] = []
    makespan: list[dict[str, Any]] = []
    strips: dict[str, Any] = {}
    expected: dict[Burst, list[list[int]]] = {}
    for design in namespace.schedulers:
        with runs_under(backend, design) as runs:
            for burst in (*bursts, *spans):  # warms the paths up, too
                answers = runs.run(burst.workload, grammar=burst.grammar).answers
                expected.setdefault(burst, answers)
            for burst in bursts:
                row, last = decode_row(runs, burst, expected[burst], namespace.rounds)
                decode.append(head_of(design, burst) | row)
                if burst == Burst(workloads[-1]):
                    one_clock = not design.kind.host_driven or backend.device.name == "cpu"
                    strips[str(design)] = strip(last.steps, burst.workload.requests, one_clock)
            for burst in spans:
                rounds = [runs.run(burst.workload) for _ in range(namespace.rounds)]
                same = share_equal([r.answers for r in rounds], expected[burst])
                makespan.append(
                    {
                        "scheduler": str(design),
                        "workload": str(burst.workload),
                        "seconds": sorted(r.seconds for r in rounds),
                        "same_answers": same,
                    }
                )
    add_speedups(decode)
    return {"decode": decode, "makespan": makespan, "strips": strips}


@dataclass(frozen=True)
class Burst:
    """A workload, whose answers are all held to `grammar` where there is one."""

    workload: Workload
    grammar: bytes | None = None


def letters() -> bytes:
    """The grammar of letters and spaces without end, which every vocabulary has tokens of."""
    return compiled(repeated(one_of(string.ascii_letters + " ")), GRAMMAR_WORDS)


def head_of(design: Design, burst: Burst) -> dict[str, Any]:
    """What a row of the parts of a step is of."""
    return {
        "scheduler": str(design),
        "kind": design.kind,
        "host_work_us": design.host_work_us,
        "streams": burst.workload.requests,
        "constrained": burst.grammar is not None,
    }


def decode_row(runs: Runs, burst: Burst, expected: list[list[int]], n: int) -> tuple[dict[str, Any], Round]:
    """Rounds whose requests end by a stop token that nobody foresees: the tax of running ahead is in."""
    requests = burst.workload.requests
    wanted = [tokens[: last_new(tokens) + 1] for tokens in expected]
    rounds = [runs.run(burst.workload, wanted, burst.grammar) for _ in range(n)]
    steps = np.concatenate([r.steps for r in rounds])
    tokens = sum(len(answer) for r in rounds for answer in r.answers)
    seconds = sum(r.seconds for r in rounds)
    zombie_rows = sum(r.zombie_rows for r in rounds)
    row = {
        **asdict(step_figures(steps, requests)),
        "tokens_per_s": tokens / seconds,
        "mean_tokens": tokens / (n * requests),
        "zombie_tax": zombie_tax(zombie_rows, tokens, requests),
        "host_cpu_us": sum(r.cpu_ns for r in rounds) / len(steps) / 1e3,
        "same_answers": share_equal([r.answers for r in rounds], wanted),
    }
    return row, rounds[-1]


def last_new(tokens: list[int]) -> int:
    """Index of the last token that does not occur before: an answer can be made to stop there."""
    return max(tokens.index(token) for token in set(tokens))


def share_equal(rounds: list[list[list[int]]], expected: list[list[int]]) -> float:
    """The share of requests with exactly the expected tokens."""
    return float(
        np.mean([answer == wanted for r in rounds for answer, wanted in zip(r, expected, strict=True)])
    )


def add_speedups(decode: list[dict[str, Any]]) -> None:
    """What the cost model says of each scheduler against blocking by a host as slow, and what was observed.

    The scheduler on the GPU is compared with the blocking host that is not slowed down.
    """

    def load_of(row: dict[str, Any]) -> tuple[int, bool, int]:
        return row["streams"], row["constrained"], row["host_work_us"]

    blocking = {load_of(row): row for row in decode if row["kind"] == SchedulerKind.BLOCKING}
    for row in decode:
        base = blocking.get(load_of(row))
        if base is None:
            continue
        row["predicted"] = predicted_speedup(base["period_us"], row["period_us"], row["zombie_tax"])
        row["observed"] = row["tokens_per_s"] / base["tokens_per_s"]


def origin(namespace: argparse.Namespace, backend: Backend) -> dict[str, Any]:
    def said(*command: str) -> str:
        try:
            return subprocess.run(command, capture_output=True, text=True).stdout.strip()
        except FileNotFoundError:
            return ""

    return {
        "model": Path(namespace.model).stem,
        "date": datetime.date.today().isoformat(),
        "commit": namespace.commit or said("git", "rev-parse", "--short", "HEAD"),
        "machine": backend.device.name,
        "driver": said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"),
        "input": namespace.input,
        "output": namespace.output,
        "batch": backend.limits.max_batch,
    }


def report(record: dict[str, Any]) -> str:
    """The results as tables for a terminal."""

    def percent(row: dict[str, Any], name: str) -> str:
        return f"{100 * (row[name] - 1):+.1f}%" if name in row else ""

    steps = [
        [
            f"{row['streams']}{' constrained' * row['constrained']}",
            row["scheduler"],
            f"{row['forward_us'] / 1e3:.3f}",
            f"{row['sampling_us'] / 1e3:.3f}",
            f"{row['period_us'] / 1e3:.3f}",
            f"{100 * row['busy']:.1f}%",
            f"{row['turn_us']:.1f}",
            f"{row['host_cpu_us']:.1f}",
            f"{100 * row['zombie_tax']:.2f}%",
            percent(row, "predicted"),
            percent(row, "observed"),
            f"{100 * row['same_answers']:.1f}%",
        ]
        for row in sorted(record["decode"], key=lambda row: (row["constrained"], row["streams"]))
    ]
    first = {row["workload"]: row["seconds"] for row in record["makespan"][::-1]}
    spans = [
        [
            row["workload"],
            row["scheduler"],
            f"{median(row['seconds']):.3f}",
            f"{median(row['seconds']) / median(first[row['workload']]):.3f}",
            f"{100 * row['same_answers']:.1f}%",
        ]
        for row in sorted(record["makespan"], key=lambda row: row["workload"])
    ]
    heading = "{model} on {machine}, batch {batch}, {date} {commit}".format(**record)
    return "\n\n".join([heading, table(STEP_HEADS, steps), table(SPAN_HEADS, spans)])


def median(values: list[float]) -> float:
    return float(np.median(values))
