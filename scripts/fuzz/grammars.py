"""Has hostile grammars compiled as a frontend does, and programs by the native compiler under sanitizers.

    .venv/bin/python scripts/fuzz/grammars.py [--count 20000] [--seconds S] [--seed N] [--corpus]

Each is compiled to a grammar, or refused with 400 and a reason; none takes more of a processor than it is
given, none ends a process by a crash, and this process does not grow. What was found is in
corpus/grammars.json.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts"), str(ROOT / "tests")]

from fuzz import command  # noqa: E402
from fuzz.grammar_cases import draw_source  # noqa: E402
from nic_frontend.compiling.protocol import GRACE_S, SLICES_S  # noqa: E402
from nic_frontend.compiling.store import Asker, Grammars, Source  # noqa: E402
from nic_frontend.errors import ApiError  # noqa: E402
from nic_frontend.observe.metrics import Metrics  # noqa: E402
from ringbuffer.grammar import unpack  # noqa: E402

CORPUS = Path(__file__).with_name("corpus") / "grammars.json"
MAX_WORDS = 1 << 20
MOST_S = sum(SLICES_S) + 0.9 * GRACE_S  # of a processor: one that has to be killed takes longer
FAULTS = ("the compiler fails on it", "too deep a stack", "makes no sense")
GROWTH_BYTES = 192 << 20  # the store keeps 64 MiB
NATIVE = "tests/nic_frontend/grammar/hostile_programs.cpp"
NATIVE_PART = 0.3  # of the time
FLAGS = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

Case = tuple[str, Source]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Attack:
    def __init__(self, grammars: Grammars, counts: Counter[str]) -> None:
        self._grammars = grammars
        self._counts = counts
        self.faults: list[str] = []

    async def one(self, label: str, source: Source) -> None:
        spent: list[float] = []

        @contextlib.contextmanager
        def working() -> Iterator[Callable[[float, bool], None]]:
            yield lambda spent_s, refused: spent.append(spent_s)

        fault = None
        try:
            unpack(await self._grammars.block(source, "p", asker=Asker(working=working)))
            self._counts["compiled"] += 1
        except ApiError as error:
            self._counts[str(error.status)] += 1
            if error.status != 400 or any(told in str(error) for told in FAULTS):
                fault = f"{error.status} {error}"
        except Exception as error:  # nothing else may come
            fault = f"{type(error).__name__} {error}"
        if sum(spent) > MOST_S:
            fault = f"{sum(spent):.1f} s of a processor"
        if fault:
            self.faults.append(f"{label}: {fault[:500]}\n  {json.dumps(source)[:1500]}")
            print(self.faults[-1], flush=True)


async def attack(cases: Iterable[Case], counts: Counter[str], until: float) -> list[str]:
    grammars = Grammars(MAX_WORDS, Metrics())
    done = Attack(grammars, counts)
    try:
        before = resident()
        waiting = iter(cases)

        async def work() -> None:
            for label, source in waiting:
                if time.monotonic() > until:
                    break
                await done.one(label, source)

        await asyncio.gather(work(), work())
        if (grown := resident() - before) > GROWTH_BYTES:
            done.faults.append(f"this process has grown by {grown >> 20} MiB")
        return done.faults
    finally:
        grammars.close()


def attack_natively(seed: int, seconds: float, counts: Counter[str]) -> list[str]:
    from compilation import build  # compiles for the tests, too

    sources = sorted(
        str(path.relative_to(ROOT)) for path in (ROOT / "nic_frontend/native/grammar").glob("*.cpp")
    )
    program = build("hostile_programs", [NATIVE, *sources], *FLAGS)
    done = subprocess.run(
        [program, str(seed), str(max(1, int(seconds)))],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds + 600,
    )
    if done.returncode:
        return [f"native: {done.stdout}{done.stderr[-4000:]}"]
    counts["programs"] += int(done.stdout.split()[0])
    return []


def run(first: int, count: int | None, seconds: float, found: list[Case] | None) -> command.Ran:
    counts = Counter[str]()
    native_s = 5.0 if seconds == float("inf") else NATIVE_PART * seconds
    faults = attack_natively(first, native_s, counts) if found is None else []
    cases: Iterable[Case] = found or ((str(seed), draw_source(seed)) for seed in command.seeds(first, count))
    faults += asyncio.run(attack(cases, counts, time.monotonic() + seconds - native_s))
    return counts, faults


def corpus() -> list[Case]:
    return list(json.loads(CORPUS.read_text()).items())


def main() -> int:
    options = command.parsed(__doc__, "grammars", 20_000, corpus=True)
    found = corpus() if options.corpus else None
    return command.told(lambda: run(options.seed, options.count, options.seconds, found), options.seed)


if __name__ == "__main__":
    sys.exit(main())
