"""Asks `blink serve demo` for as long as is wanted, checks every answer, and what it holds afterwards.

    .venv/bin/python scripts/fuzz/soak.py [--seconds 3600] [--device auto] [--seed N]

Every answer is the one that came first to its prompt. When the clients have gone, no request is open, the
KV pages are all back, and no process has grown, nor has more open files.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import httpx  # noqa: E402

from fuzz.faults import READY_S, ROOT, Load, Service, free_port, reference  # noqa: E402

WARM_S = 20.0  # before memory is looked at
REST_S = 10.0  # for everything to be given back
MOST_GROWTH = 48 << 20  # bytes of a process
MORE_FILES = 8  # some are opened when they are needed first
FIGURE = re.compile(
    r"^blink:(num_requests_running|num_requests_waiting|scheduler_free_pages)(?:\{.*\})? (\S+)$"
)


def figures(url: str) -> dict[str, float]:
    """Of the scheduler: what it has open, and its free pages."""
    text = httpx.get(f"{url}/metrics", timeout=30).text
    return {found[1]: float(found[2]) for line in text.splitlines() if (found := FIGURE.match(line))}


def at_rest(url: str, wanted: dict[str, float]) -> dict[str, float]:
    """The figures once they are as wanted, or what they are after REST_S."""
    deadline = time.monotonic() + REST_S
    while (found := figures(url)) != wanted and time.monotonic() < deadline:
        time.sleep(0.5)
    return found


def held(service: Service) -> dict[int, tuple[int, int]]:
    """Of each process: bytes of memory, and open files."""
    page = os.sysconf("SC_PAGE_SIZE")
    return {
        pid: (
            page * int(Path(f"/proc/{pid}/statm").read_text().split()[1]),
            len(os.listdir(f"/proc/{pid}/fd")),
        )
        for pid in service.children()
    }


def differences(before: dict[int, tuple[int, int]], after: dict[int, tuple[int, int]]) -> list[str]:
    found = [] if set(before) == set(after) else [f"processes {sorted(before)} have become {sorted(after)}"]
    for pid in set(before) & set(after):
        (memory, files), (memory_now, files_now) = before[pid], after[pid]
        if memory_now - memory > MOST_GROWTH:
            found.append(f"process {pid} has grown by {memory_now - memory >> 20} MiB")
        if files_now > files + MORE_FILES:
            found.append(f"process {pid} has {files_now} open files, and had {files}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--device", default="auto", help="gpu, cpu or auto (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    log = ROOT / "build" / "soak.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    service = Service(options.device, free_port(), log)
    faults: list[str] = []
    try:
        if not service.ready(READY_S):
            raise SystemExit(f"the service does not start: see {log}")
        expected = reference(service.url, random.Random(options.seed))
        resting = {**figures(service.url), "num_requests_running": 0.0, "num_requests_waiting": 0.0}
        files = held(service)
        load = Load(service.url, expected)
        time.sleep(min(WARM_S, options.seconds))
        before = {pid: (memory, files[pid][1]) for pid, (memory, _) in held(service).items()}
        time.sleep(max(0.0, options.seconds - WARM_S))
        load.end()
        if (found := at_rest(service.url, resting)) != resting:
            faults.append(f"{found} where {resting} belongs")
        faults += differences(before, held(service)) + load.wrong[:10]
        faults += [f"{n} times {what}" for what, n in load.counts.items() if what not in ("right", "WRONG")]
    finally:
        status = service.end()
    print(f"{options.seconds:g} s, {len(expected)} prompts: {dict(load.counts)}, exit status {status}")
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults")
    return 1 if faults or status else 0


if __name__ == "__main__":
    sys.exit(main())
