#!/usr/bin/env python3
"""Measures the paper's evaluation, a few points a run, until it is complete: load sweeps and interference.

    python scripts/bench/sweep.py --list
    python scripts/bench/sweep.py --minutes 9 --vllm vllm.tar.xz
    python scripts/bench/sweep.py --minutes 9 --vllm vllm.tar.xz --part sweep --model llama-3-8b
    python scripts/bench/sweep.py --minutes 2 --model models/demo --rates 1,2 --window 4 --drain 10

The plan is the table of sweep_plan.py. A run starts servers, measures points that --results does not have
yet, appends a record for each, and stops before its minutes are over. The same command goes on where the last
run stopped, also where that one was killed. Points that are compared are measured in one run, on one card: if
a run measured only some of them, all are measured again. A point that failed is tried once more. One for
which time ran out is recorded as late; later runs plan with the starts that were measured, and give it up
after three times. A run in which nothing of what is left fits says what that needs, and fails. --earlier
names files of other runs, whose points are not measured again.

With --model DIRECTORY, --rates, --window and --drain are the plan: a trial.
evaluation.py makes the tables.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.laboratory import Cores, Machine, Setting  # noqa: E402
from bench.servers import unpacked  # noqa: E402
from bench.sweep_plan import (  # noqa: E402
    BLOCKS,
    INTERFERENCE,
    ISOLATED,
    OTHERS,
    OWN,
    PACES,
    SWEEP,
    VARIANTS,
    Block,
    Times,
    Unit,
    batch_for,
    chosen,
    plan,
    units_of,
)
from bench.sweep_records import ATTEMPTS, FAILED, LATE, Results, left, tried_in_vain  # noqa: E402
from bench.sweep_run import run  # noqa: E402
from bench.sweep_starts import Starts  # noqa: E402
from bench.tenants import LEAST_CORES  # noqa: E402

from blink.bench.options import many, rate  # noqa: E402
from blink.flags import checked, cores, seconds  # noqa: E402

PARTS = (SWEEP, INTERFERENCE)
CONDITIONS = {SWEEP: (ISOLATED,), INTERFERENCE: (ISOLATED, OTHERS, OWN)}  # of a trial
TRIAL_DROP = 0.1  # of its windows
PREPARE_S = 30.0  # of a run, before its first server
CORES = ("whole", "reserved", "apart", "tenants", "clients")


def units(arguments: argparse.Namespace) -> list[Unit]:
    """The plan of this command. Raises SystemExit for flags that make none."""
    trial = (arguments.rates, arguments.window, arguments.drain)
    directories = [name for name in arguments.model or () if Path(name).is_dir()]
    if not directories:
        if any(value is not None for value in trial):
            raise SystemExit("--rates, --window and --drain are those of a trial: give --model a directory")
        return plan(chosen(BLOCKS, arguments.part, arguments.model, arguments.variants))
    if None in trial or len(arguments.model) > 1:
        raise SystemExit("a directory is measured alone, with --rates, --window and --drain")
    times = Times(arguments.window, TRIAL_DROP * arguments.window, arguments.drain)
    variants = tuple(arguments.variants or ("blink",))
    blocks = (
        Block(part, directories[0], variants, arguments.rates, conditions=CONDITIONS[part])
        for part in arguments.part or (SWEEP,)
    )
    return [unit for block in blocks for unit in units_of(block, lambda _: times)]


def listing(plan: Sequence[Unit], results: Results) -> str:
    """What is done of each block, and what is left; points that are given up are done, and counted."""
    rows = []
    waiting = left(plan, results.records)
    lost = {status: tried_in_vain(results.records, status) for status in (FAILED, LATE)}
    for block in dict.fromkeys(unit.block for unit in plan):
        mine = [unit for unit in plan if unit.block == block]
        rest = [unit for unit in waiting if unit.block == block]
        rates = ", ".join(f"{unit.points[0].key.rate:g}" for unit in rest)
        told = f"left at {rates} requests/s" if rest else "done"
        keys = {point.key for unit in mine for point in unit.points}
        n_failed, n_late = (len(keys & lost[status]) for status in (FAILED, LATE))
        given_up = f", {n_failed} points failed" if n_failed else ""
        given_up += f", {n_late} points late {ATTEMPTS[LATE]} times, and given up" if n_late else ""
        servers = "+".join(block.variants)
        where = "" if block.part == SWEEP else f" ({', '.join(block.conditions)})"
        done = f"{len(mine) - len(rest)} of {len(mine)}"
        rows.append(f"{block.part} {block.model} {servers}{where}: {done}, {told}{given_up}")
    return "\n".join(rows)


def runs_for(waiting: Sequence[Unit], seconds: float, starts: Starts) -> tuple[int, float]:
    """How many runs of so many seconds the units take that fit into one, and their minutes."""
    runs, spent = 0, 0.0
    rest = [unit for unit in waiting if needed_s(unit, starts) <= seconds]
    while rest:
        remaining = seconds - PREPARE_S
        while batch := batch_for(rest, remaining, starts.of_block):
            remaining -= sum(unit.longest_s for unit in batch) + starts.of_block(batch[0].block)
            rest = [unit for unit in rest if unit not in batch]
        runs, spent = runs + 1, spent + seconds - remaining
    return runs, spent / 60


def needed_s(unit: Unit, starts: Starts) -> float:
    """By a run that measures it alone."""
    return PREPARE_S + starts.of_block(unit.block) + unit.longest_s


def told_too_long(waiting: Sequence[Unit], seconds: float, starts: Starts) -> str:
    """Which units a run of so many seconds does not measure, and what they need; empty where it does all."""
    rows = []
    too_long = [unit for unit in waiting if needed_s(unit, starts) > seconds]
    for block in dict.fromkeys(unit.block for unit in too_long):
        mine = [unit for unit in too_long if unit.block == block]
        rates = ", ".join(f"{unit.points[0].key.rate:g}" for unit in mine)
        minutes = math.ceil(max(needed_s(unit, starts) for unit in mine) / 6) / 10
        begins = ", ".join(f"{name} {starts.of(name, block.model):.0f} s" for name in block.variants)
        where = f"{block.part} {block.model} at {rates} requests/s"
        rows.append(f"  {where} needs --minutes {minutes:g} (starts: {begins})")
    return "\n".join([f"no run of {seconds / 60:.3g} min measures what is left of", *rows]) if rows else ""


def layout(text: str) -> Cores:
    """Of "whole=0-11 reserved=0-5 apart=6-7 tenants=8-11 clients=12-15". Raises ValueError."""
    given = dict(part.partition("=")[::2] for part in text.split())
    if set(given) != set(CORES):
        raise ValueError(f"'{text}' does not say what cores are {', '.join(CORES)}, as NAME=CORES")
    found = Cores(**{name: cores(value) for name, value in given.items()})
    if len(found.tenants) < LEAST_CORES:
        raise ValueError(f"tenants={given['tenants']}: they need {LEAST_CORES} cores")
    return found


def among(known: Sequence[str], what: str, text: str) -> list[str]:
    """Raises ValueError."""
    found = text.split(",")
    if unknown := [name for name in found if name not in known]:
        raise ValueError(f"{what} '{unknown[0]}' is unknown; there are {', '.join(known)}")
    return found


def models(text: str) -> list[str]:
    """Raises ValueError."""
    return [text] if Path(text).is_dir() else among(tuple(PACES), "model", text)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_argument_group("what")
    what.add_argument("--part", type=checked(lambda text: among(PARTS, "part", text)), metavar="PART[,PART]")
    what.add_argument("--model", type=checked(models), metavar="NAME[,NAME...]", help="or a directory")
    what.add_argument(
        "--variants",
        type=checked(lambda text: among(tuple(VARIANTS), "variant", text)),
        metavar="NAME[,NAME...]",
    )
    what.add_argument("--rates", type=checked(many(rate)), metavar="R[,R...]", help="of a trial, requests/s")
    what.add_argument("--window", type=checked(seconds), metavar="SECONDS", help="of a trial")
    what.add_argument("--drain", type=checked(seconds), metavar="SECONDS", help="of a trial")
    parser.add_argument(
        "--list", action="store_true", help="what is done, and what is left; measures nothing"
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="that this run may take")
    parser.add_argument("--results", type=Path, default=Path("build/bench/sweep.jsonl"), metavar="FILE")
    parser.add_argument("--earlier", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--vllm", type=Path, metavar="PATH", help="archive with site/, or a directory")
    parser.add_argument("--commit", help="what is measured, for the record (default: as git says)")
    parser.add_argument(
        "--cores",
        type=checked(layout),
        metavar="'NAME=CORES ...'",
        help="who runs where (default: 12 for servers, 6 of them under interference, the last 4 for load)",
    )
    parser.add_argument("--server-flag", action="append", default=[], help="one more flag for blink")
    parser.add_argument("--bench-flag", action="append", default=[], help="one more for blink bench serve")
    return parser.parse_args()


def main() -> None:
    began = time.monotonic()
    arguments = parse()
    wanted = units(arguments)
    results = Results(arguments.results, arguments.earlier)
    waiting, starts = left(wanted, results.records), Starts(results.records)
    available_s = 60 * arguments.minutes
    too_long = told_too_long(waiting, available_s, starts)
    if arguments.list or not waiting:
        runs, minutes = runs_for(waiting, available_s, starts)
        print(listing(wanted, results))
        print(f"left: {runs} runs of {arguments.minutes:g} min, in all {minutes:.0f} min at most")
        if too_long:
            raise SystemExit(too_long)
        return
    needs_vllm = any(VARIANTS[name].server == "vllm" for unit in waiting for name in unit.block.variants)
    if needs_vllm and arguments.vllm is None:
        raise SystemExit("the plan has vLLM: give --vllm, or --variants without it")
    if all(needed_s(unit, starts) > available_s for unit in waiting):
        raise SystemExit(too_long)
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    # What a killed tenant still writes into it is no reason to end without a listing.
    with tempfile.TemporaryDirectory(prefix="blink-sweep-", ignore_cleanup_errors=True) as scratch:
        machine = Machine(
            Setting(
                arguments.cores or Cores.of(sorted(os.sched_getaffinity(0))),
                Path(scratch),
                arguments.results.parent.absolute(),
                arguments.commit,
                unpacked(arguments.vllm) if needs_vllm else None,
                tuple(arguments.server_flag),
                tuple(arguments.bench_flag),
            )
        )
        prepared_s = time.monotonic() - began
        n_begun = run(wanted, results, machine, began + available_s, time.monotonic)
    print(listing(wanted, results))
    # With the starts that were measured now, more may be too long than before.
    too_long = told_too_long(left(wanted, results.records), available_s, Starts(results.records))
    if too_long:
        print(too_long, file=sys.stderr)
    if not n_begun:
        less_s = available_s - (prepared_s - PREPARE_S)  # it took longer than planned
        told = told_too_long(waiting, less_s, starts)
        raise SystemExit(f"nothing was measured: preparing took {prepared_s:.0f} s\n{told}")


if __name__ == "__main__":
    main()
