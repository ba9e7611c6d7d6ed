"""What one hostile client among a hundred polite ones costs these, one attack after the other.

    .venv/bin/python scripts/bench/hostile.py [--seconds 30] [--polite 100] [--only ATTACK,...] [--url URL]

Serves the demo model on the CPU, unless --url names a server. Each polite client asks for 8 tokens again and
again over a connection of its own, with a pause of a second in between. The attacks have a process of their
own.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import random
import subprocess
import sys
import time
import urllib.parse
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts")]

from fuzz.wire import Malformed, read_response  # noqa: E402
from hostile_attacks import ATTACKS, Peer  # noqa: E402

KEY = "a key for the benchmark"
PAUSE_S = 1.0
LONG_S = 300.0


def hostile(name: str, peer: Peer, counts: multiprocessing.Queue[dict[str, int]], over: float) -> None:
    attack = ATTACKS[name][1]
    assert attack is not None
    found = Counter[str]()

    async def run() -> None:
        try:
            async with asyncio.timeout(over - time.time()):
                await attack(peer, found)
        except TimeoutError:
            pass

    asyncio.run(run())
    counts.put(dict(found))


# ---------------------------------------------------------------- polite clients


async def polite(peer: Peer, number: int, over: float, times: list[float], failed: Counter[str]) -> None:
    request = peer.post({"prompt": f"Count from {number % 9} to 40.", "max_tokens": 8, "temperature": 0})
    await asyncio.sleep(random.Random(number).random() * PAUSE_S)
    streams = None
    while time.time() < over:
        began = time.monotonic()
        try:
            streams = streams or await peer.connect()
            streams[1].write(request)
            async with asyncio.timeout(LONG_S):
                answer = await read_response(streams[0])
            if answer is None:
                streams = None  # a connection that had waited for long made room: it is made anew
                failed["closed"] += 1
            elif answer.status != 200:
                failed[str(answer.status)] += 1
            else:
                times.append(time.monotonic() - began)
        except (OSError, Malformed, TimeoutError, asyncio.IncompleteReadError) as error:
            failed[type(error).__name__] += 1
            streams = None
        await asyncio.sleep(PAUSE_S)


async def crowd(peer: Peer, n: int, over: float) -> tuple[list[float], Counter[str]]:
    times: list[float] = []
    failed = Counter[str]()
    await asyncio.gather(*(polite(peer, number, over, times, failed) for number in range(n)))
    return sorted(times), failed


def measure(name: str, peer: Peer, n: int, seconds: float) -> str:
    """A line of the table."""
    over = time.time() + seconds
    counts: multiprocessing.Queue[dict[str, int]] = multiprocessing.Queue()
    process = (
        multiprocessing.Process(target=hostile, args=(name, peer, counts, over)) if name != "none" else None
    )
    if process is not None:
        process.start()
    times, failed = asyncio.run(crowd(peer, n, over))
    done = ""
    if process is not None:
        done = ", ".join(f"{k}: {v}" for k, v in sorted(counts.get(timeout=60).items())) or "nothing ended"
        process.join(30)
    p50, p99, most = (
        f"{1000 * times[min(len(times) - 1, int(q * len(times)))]:.0f}" if times else ""
        for q in (0.5, 0.99, 1)
    )
    bad = ", ".join(f"{k}: {v}" for k, v in failed.items()) or "0"
    return f"| {ATTACKS[name][0]} | {len(times)} | {bad} | {p50} | {p99} | {most} | {done} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="of each attack (default: %(default)s)")
    parser.add_argument("--polite", type=int, default=100, metavar="N", help="clients (default: %(default)s)")
    parser.add_argument("--only", default=",".join(ATTACKS), help="attacks, of " + ", ".join(ATTACKS))
    parser.add_argument("--url", help="a server that is there (default: one of the demo model on the CPU)")
    parser.add_argument("--key", default=KEY, help="its API key")
    options = parser.parse_args()
    server = None
    if options.url is None:
        command = [
            sys.executable,
            "-m",
            "blink",
            "serve",
            "demo",
            "--device=cpu",
            "--port=8765",
            "--max-batch=32",
        ]
        environment = {**os.environ, "BLINK_API_KEY": options.key}
        server = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
        assert server.stderr is not None
        while "ready after" not in (line := server.stderr.readline()):
            assert line, "the server has ended"
    address = urllib.parse.urlsplit(options.url or "http://127.0.0.1:8765")
    peer = Peer(address.hostname or "", address.port or 80, options.key)
    print("| what one client does | answers to others | lost | p50, ms | p99 | longest | what it got |")
    print("|---|---|---|---|---|---|---|", flush=True)
    try:
        for name in options.only.split(","):
            print(measure(name, peer, options.polite, options.seconds), flush=True)
            time.sleep(2)
    finally:
        if server is not None:
            server.terminate()
            server.wait(60)


if __name__ == "__main__":
    main()
