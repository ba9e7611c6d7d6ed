"""What a turn of the scheduler's loop takes of a processor, with so many requests open (scheduler_turns.cpp).

    .venv/bin/python scripts/bench/scheduler_turns.py [--open 64,1024,4096] [--max-batch 128] [--tokens 8]

Prints a table. The emulation has one thread for what 256 of a GPU do side by side.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("scripts/bench/scheduler_turns.cpp", "nic_frontend/native/crc32c.cpp")
FLAGS = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-I.", "-Itests/kernels/simulator", "-pthread")
KINDS = ("scan", "take", "stage", "admit", "step")

Turns = dict[str, dict[str, int]]  # by kind: turns, requests, ns, p50, p99


def built() -> Path:
    program = ROOT / "build" / "bench" / "scheduler_turns"
    program.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["c++", *FLAGS, *SOURCES, "-o", str(program)], cwd=ROOT, check=True)
    return program


def measured(program: Path, n_open: int, max_batch: int, tokens: int) -> Turns:
    command = [str(program), str(n_open), str(max_batch), str(tokens)]
    found: Turns = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def row(n_open: int, turns: Turns) -> str:
    cells = [str(n_open)]
    for kind in KINDS:
        of = turns[kind]
        each = f" ({of['ns'] / of['requests'] / 1e3:.2f} a request)" if of["requests"] else ""
        cells.append(f"{of['p50'] / 1e3:.1f}, {of['p99'] / 1e3:.1f}{each}")
    return f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--open", default="64,1024,4096", metavar="N,...")
    parser.add_argument("--max-batch", type=int, default=128, metavar="ROWS")
    parser.add_argument("--tokens", type=int, default=8, metavar="N", help="of each answer")
    options = parser.parse_args()
    program = built()
    print(f"| open | {' | '.join(KINDS)} |\n|{'---|' * (len(KINDS) + 1)}")
    for n_open in map(int, options.open.split(",")):
        print(row(n_open, measured(program, n_open, options.max_batch, options.tokens)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
