"""Mutates all that a frontend may write of the ring, under the address sanitizer (simulator/hostile.cpp).

    .venv/bin/python scripts/fuzz/ring.py [--seconds 60] [--seed N] [--mutations 20000]

Two frontends beside the hostile one keep the protocol and check every answer. Prints how much was done.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

SOURCE = "tests/kernels/simulator/hostile.cpp"
FLAGS = ("-O1", "-Wno-extra", "-Wno-parentheses", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
COUNTS = re.compile(r"(mutations|submissions|completed in all|torn|failed|that ended right) (\d+)")
HANGS_S = 600.0


def run(program: Path, mutations: int, seed: int) -> tuple[int, subprocess.CompletedProcess[str] | None]:
    """The seed, and how it ended; None: not within HANGS_S."""
    try:
        return seed, subprocess.run(
            [program, str(mutations), str(seed)], capture_output=True, text=True, timeout=HANGS_S, check=False
        )
    except subprocess.TimeoutExpired:
        return seed, None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="begin no run after so long")
    parser.add_argument("--seed", type=int, help="the first seed (default: from the clock)")
    parser.add_argument("--mutations", type=int, default=20_000, help="of one run (default: %(default)s)")
    options = parser.parse_args()
    from compilation import build  # compiles for the tests, too

    program = build("hostile", [SOURCE], *FLAGS)
    first = options.seed if options.seed is not None else int(time.time())
    counts, faults, runs, workers = Counter[str](), 0, 0, os.cpu_count() or 1
    began = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        while time.monotonic() - began < options.seconds:
            seeds = range(first + runs, first + runs + workers)
            for seed, done in pool.map(lambda seed: run(program, options.mutations, seed), seeds):
                runs += 1
                if done is None or done.returncode:
                    faults += 1
                    print(
                        f"seed {seed}: {done.stdout + done.stderr[-4000:] if done else 'it hangs'}",
                        flush=True,
                    )
                    continue
                counts.update({name: int(n) for name, n in COUNTS.findall(done.stdout)})
    print(f"{runs} runs, seeds from {first}: {', '.join(f'{n} {name}' for name, n in counts.items())}")
    print(f"{faults} faults in {time.monotonic() - began:.0f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
