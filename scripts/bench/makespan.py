#!/usr/bin/env python3
"""Makespans of bursts with the scheduler on the GPU and on the host: the Blink paper's Figure 3.

    python scripts/bench/makespan.py qwen3-32b --minutes 8 --out build/bench/makespan.jsonl
    python scripts/bench/makespan.py demo --device cpu --makespan 4x16-8 --out build/bench/makespan.jsonl

Engine, graphs, policy and ring are the same under every scheduler (kernels/scheduler/driven/README.md); the
batch is the paper's. A shape of scripts/bench/shapes has random weights. The paper draws four workloads and
names their numbers only in its picture: those here are this project's, from short answers to long ones. The
first scheduler is what the others are divided by.

Every burst is appended to --out as it ends, one line of JSON each. Called again with the same file, the
program measures what is still missing at this commit, and its status is 75 where something is missing. With
--minutes it begins nothing whose estimate ends later (burst_times.py): a burst, or a scheduler with its
warm-up. An estimate is no bound: the first warm-up of a file has none, and no burst is broken off. The table
at the end has, for each scheduler, by how many microseconds a step it is longer than the first, and as many
for the paper's ratios.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.burst_times import BurstTimes, Deadline  # noqa: E402
from bench.json_lines import append_line  # noqa: E402
from bench.origin import origin  # noqa: E402
from bench.shape import SHAPES  # noqa: E402

from blink.bench.scheduler_runs import (  # noqa: E402
    Design,
    Workload,
    parse_design,
    parse_workload,
    runs_under,
)
from blink.bench.schedulers import MAKESPANS, directory_of, listed  # noqa: E402
from blink.bench.tables import table  # noqa: E402
from blink.files import CheckedPath, writable_file  # noqa: E402
from blink.flags import checked, count  # noqa: E402
from gpu_backend.backend import Backend  # noqa: E402
from gpu_backend.options import BackendOptions  # noqa: E402

PAPER_BATCH, PAPER_RATIOS = 16, (1.16, 1.70)
SCHEDULERS = "gpu,async,pipelined,blocking,blocking+1570"  # the last as Photon's on a B200 at 32 streams
WARM_TOKENS = 8  # of each answer of a burst that warms up
SOMETHING_MISSING = 75  # of sysexits.h: try again later

Row = dict[str, Any]


@dataclass(frozen=True)
class Key:
    """What a line is the measurement of, at one commit."""

    model: str
    machine: str
    batch: int
    scheduler: str
    workload: str
    turn: int


def read_rows(path: Path, commit: str) -> list[Row]:
    """The lines of this commit. A last line that was cut off is left out. Raises SystemExit for another
    file."""
    rows = []
    text = path.read_text() if path.exists() else ""
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
        try:
            row = json.loads(line)
            if row["what"] != "makespan":
                raise ValueError
        except (ValueError, TypeError, KeyError):
            raise SystemExit(f"{path}: line {number} is none that this program wrote") from None
        rows.append(row)
    return [row for row in rows if row["commit"] == commit]


def key_of(row: Row) -> Key:
    return Key(*(row[name] for name in ("model", "machine", "batch", "scheduler", "workload", "turn")))


def digest(answers: Sequence[Sequence[int]]) -> str:
    return hashlib.sha256(json.dumps([list(answer) for answer in answers]).encode()).hexdigest()[:16]


Wanted = dict[tuple[Workload, Design], list[Key]]


def wanted_keys(arguments: argparse.Namespace, name: str, machine: str) -> Wanted:
    """For each workload all schedulers, one after the other, so that what there is can be compared."""
    return {
        (workload, design): [
            Key(name, machine, arguments.batch, str(design), str(workload), turn)
            for turn in range(arguments.rounds)
        ]
        for workload in arguments.makespan
        for design in arguments.schedulers
    }


def warm_up_of(workload: Workload) -> Workload:
    return replace(workload, output=min(workload.output, WARM_TOKENS))


def measure(
    backend: Backend, wanted: Wanted, done: set[Key], times: BurstTimes, deadline: Deadline
) -> Iterator[Row]:
    """What is `wanted` and not `done`, until the deadline."""
    for (workload, design), keys in wanted.items():
        missing = [key for key in keys if key not in done]
        if not missing or not deadline.allows(times.to_begin(design, warm_up_of(workload), workload)):
            continue
        began = time.monotonic()
        with runs_under(backend, design) as runs:
            times.changed(time.monotonic() - began)
            ran = runs.run(warm_up_of(workload))
            times.took(design, warm_up_of(workload), ran.seconds, len(ran.steps))
            for key in missing:
                if not deadline.allows(times.estimate(design, workload)):
                    break  # a shorter workload may still end
                ran = runs.run(workload)
                times.took(design, workload, ran.seconds, len(ran.steps))
                found = {"seconds": ran.seconds, "steps": len(ran.steps), "answers": digest(ran.answers)}
                yield vars(key) | found


def group_of(row: Row) -> tuple[str, str, int]:
    return row["model"], row["machine"], row["batch"]


def report(rows: Sequence[Row], first: str) -> str:
    """A table for each model, machine and batch."""
    tables = []
    for group in dict.fromkeys(group_of(row) for row in rows):
        own = [row for row in rows if group_of(row) == group]
        tables.append("{} on {}, batch {}\n".format(*group) + table(HEADS, table_rows(own, first)))
    return "\n\n".join(tables)


HEADS = ("workload", "scheduler", "n", "seconds", "ratio", "from", "to", "us a step more", "same answers")


def table_rows(rows: Sequence[Row], first: str) -> list[list[str]]:
    """Medians, divided by the first scheduler's; `from` and `to` are the least and the most of all pairs."""
    found: list[list[str]] = []
    for workload in dict.fromkeys(row["workload"] for row in rows):
        of_workload = [row for row in rows if row["workload"] == workload]
        base = [row for row in of_workload if row["scheduler"] == first]
        if not base:
            continue
        base_s, steps = middle(base, "seconds"), middle(base, "steps")
        for scheduler in dict.fromkeys(row["scheduler"] for row in of_workload):
            own = [row for row in of_workload if row["scheduler"] == scheduler]
            seconds = [row["seconds"] for row in own]
            same = sum(row["answers"] == base[0]["answers"] for row in own)
            median = middle(own, "seconds")
            found.append(
                [
                    workload,
                    scheduler,
                    str(len(own)),
                    f"{median:.3f}",
                    f"{median / base_s:.3f}",
                    f"{min(seconds) / max(row['seconds'] for row in base):.3f}",
                    f"{max(seconds) / min(row['seconds'] for row in base):.3f}",
                    f"{(median - base_s) / steps * 1e6:.0f}",
                    f"{same} of {len(own)}",
                ]
            )
        for ratio in PAPER_RATIOS:
            more = f"{(ratio - 1) * base_s / steps * 1e6:.0f}"
            found.append([workload, "(the paper)", "", "", f"{ratio:.3f}", "", "", more, ""])
    return found


def middle(rows: Sequence[Row], name: str) -> float:
    return float(np.median([row[name] for row in rows]))


def options_of(arguments: argparse.Namespace, scratch: Path) -> BackendOptions:
    shape = SHAPES / f"{arguments.model}.json"
    directory, random = directory_of(str(shape) if shape.exists() else arguments.model, scratch)
    return BackendOptions(
        directory,
        ring=f"makespan-{os.getpid()}",
        device=arguments.device,
        max_context=max(workload.tokens for workload in arguments.makespan),
        max_batch=arguments.batch,
        random_weights=random,
        scheduler=arguments.schedulers[0].kind,
    )


def minutes(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise ValueError(f"{text} is not a time of more than 0 minutes")
    return value


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "model", metavar="MODEL", help="a name of scripts/bench/shapes, a directory or 'demo'"
    )
    parser.add_argument("--device", choices=("auto", "gpu", "cpu"), default="auto", help="(default: auto)")
    parser.add_argument(
        "--schedulers", type=checked(listed(parse_design)), default=SCHEDULERS, metavar="KIND[+US],...",
        help=f"US: by how many microseconds a step the host is slowed down (default: {SCHEDULERS})",
    )  # fmt: skip
    parser.add_argument(
        "--makespan", type=checked(listed(parse_workload)), default=MAKESPANS, metavar="NxI-O,...",
        help=f"bursts of N requests, I tokens in and O out (default: {MAKESPANS})",
    )  # fmt: skip
    parser.add_argument("--batch", type=checked(count), default=PAPER_BATCH, help="(default: 16)")
    parser.add_argument("--rounds", type=checked(count), default=3, help="(default: 3)")
    parser.add_argument(
        "--minutes",
        type=checked(minutes),
        help="until every burst should have ended, by estimates; from the start of this program",
    )
    parser.add_argument("--commit", help="recorded with the results (default: what git says)")
    parser.add_argument("--out", action=CheckedPath, check=writable_file, required=True, metavar="FILE")
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    deadline = Deadline(arguments.minutes, time.monotonic)
    name = Path(arguments.model).stem
    with tempfile.TemporaryDirectory() as scratch:
        backend = Backend(options_of(arguments, Path(scratch)))
        backend.start()
        try:
            about = origin("makespan", backend.device.name, arguments.commit)
            rows = read_rows(arguments.out, about["commit"])
            times = BurstTimes()
            for row in rows:
                if group_of(row) == (name, backend.device.name, arguments.batch):
                    ran = parse_design(row["scheduler"]), parse_workload(row["workload"])
                    times.took(*ran, row["seconds"], row["steps"])
            wanted = wanted_keys(arguments, name, backend.device.name)
            for row in measure(backend, wanted, {key_of(row) for row in rows}, times, deadline):
                append_line(arguments.out, about | row)
                print(f"{row['workload']} {row['scheduler']}: {row['seconds']:.3f} s", flush=True)
        finally:
            backend.stop(0.0)
    rows = read_rows(arguments.out, about["commit"])
    print(report(rows, str(arguments.schedulers[0])))
    keys = {key for group in wanted.values() for key in group}
    missing = len(keys - {key_of(row) for row in rows})
    if missing:
        told = f"{missing} of {len(keys)} bursts are missing: call this again with the same --out"
        print(told, file=sys.stderr)
    return SOMETHING_MISSING if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
