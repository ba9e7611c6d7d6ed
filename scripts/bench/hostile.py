"""What one hostile client among a hundred polite ones costs these, one attack after the other.

    .venv/bin/python scripts/bench/hostile.py [--seconds 30] [--polite 100] [--only ATTACK,...] [--url URL]

Serves the demo model on the CPU, unless --url names a server. Each polite client asks for 8 tokens again and
again over a connection of its own, with a pause of a second in between. The attacks have a process of their
own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import subprocess
import sys
import time
import urllib.parse
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts")]

from fuzz.stream_cases import draw_case  # noqa: E402
from fuzz.wire import Malformed, read_response  # noqa: E402

KEY = "a key for the benchmark"
PAUSE_S = 1.0
LONG_S = 300.0
MIB = 1 << 20


class Peer:
    """Where the server is, and the key to it."""

    def __init__(self, host: str, port: int, key: str) -> None:
        self.host, self.port, self.key = host, port, key

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self.host, self.port, limit=MIB)

    def head(self, length: int, key: str | None = None) -> bytes:
        return (
            f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key or self.key}\r\n"
            f"content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        ).encode()

    def post(self, body: object, key: str | None = None) -> bytes:
        content = json.dumps(body).encode()
        return self.head(len(content), key) + content


# ---------------------------------------------------------------- attacks: each asks until it is ended

Attack = Callable[[Peer, Counter[str]], Awaitable[None]]


async def asked(peer: Peer, request: bytes, counts: Counter[str]) -> None:
    """One request over a connection of its own, to its end."""
    try:
        reader, writer = await peer.connect()
        try:
            writer.write(request)
            answer = await read_response(reader)
            counts[str(answer.status) if answer else "closed"] += 1
        finally:
            writer.close()
    except (OSError, Malformed, asyncio.IncompleteReadError):
        counts["closed"] += 1


async def again(peer: Peer, request: bytes, counts: Counter[str], at_once: int = 1) -> None:
    async def one() -> None:
        while True:
            await asked(peer, request, counts)

    await asyncio.gather(*(one() for _ in range(at_once)))


async def long_prompts(peer: Peer, counts: Counter[str]) -> None:
    rng = random.Random(1)
    prompts = [[rng.randrange(10, 1000) for _ in range(2000)] for _ in range(128)]
    await again(peer, peer.post({"prompt": prompts, "max_tokens": 8}), counts)


async def long_answers(peer: Peer, counts: Counter[str]) -> None:
    await again(peer, peer.post({"prompt": "x", "n": 128, "max_tokens": 1500, "ignore_eos": True}), counts)


async def long_stops(peer: Peer, counts: Counter[str]) -> None:
    stop = ["a" * 2000 + "b"]
    await again(
        peer, peer.post({"prompt": "a", "n": 8, "max_tokens": 1500, "ignore_eos": True, "stop": stop}), counts
    )


async def many_arrays(peer: Peer, counts: Counter[str]) -> None:
    content = b'{"prompt": [' + b"[]," * (8 * MIB // 3 - 100) + b"[]]}"
    await again(peer, peer.head(len(content)) + content, counts)


async def half_bodies(peer: Peer, counts: Counter[str]) -> None:
    async def one() -> None:
        while True:
            try:
                reader, writer = await peer.connect()
                writer.write(peer.head(8 * MIB) + b" " * (7 * MIB))
                answer = await read_response(reader)
                counts[str(answer.status) if answer else "closed"] += 1
                writer.close()
            except (OSError, Malformed):
                counts["closed"] += 1

    await asyncio.gather(*(one() for _ in range(60)))


async def silent_connections(peer: Peer, counts: Counter[str]) -> None:
    kept = []
    while True:
        try:
            kept.append(await peer.connect())
            counts["opened"] += 1
        except OSError:
            counts["refused"] += 1
        if len(kept) > 5000:
            kept.pop(0)[1].close()
            await asyncio.sleep(0.001)


async def wrong_keys(peer: Peer, counts: Counter[str]) -> None:
    await again(peer, peer.post({"prompt": "x"}, key="wrong"), counts, at_once=32)


async def garbage(peer: Peer, counts: Counter[str]) -> None:
    async def one(number: int) -> None:
        seed = number << 32
        while True:
            seed += 1
            await asked(peer, b"".join(draw_case(seed).pieces) + b"\0\r\n\r\n", counts)

    await asyncio.gather(*(one(number) for number in range(16)))


async def trailers(peer: Peer, counts: Counter[str]) -> None:
    head = peer.head(0).replace(b"content-length: 0", b"transfer-encoding: chunked")
    await again(peer, head + b"2\r\n{}\r\n0\r\n" + b"a: b\r\n" * 100_000, counts, at_once=4)


async def unread_streams(peer: Peer, counts: Counter[str]) -> None:
    body = {"prompt": "x", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    while True:
        opened = []
        for _ in range(64):
            try:
                _, writer = await peer.connect()
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                writer.write(peer.post(body))
                opened.append(writer)
                counts["opened"] += 1
            except OSError:
                counts["refused"] += 1
        await asyncio.sleep(3)
        for writer in opened:
            writer.close()


async def left_at_once(peer: Peer, counts: Counter[str]) -> None:
    request = peer.post({"prompt": "x" * 500, "n": 16, "max_tokens": 500, "ignore_eos": True, "stream": True})
    while True:
        try:
            _, writer = await peer.connect()
            writer.write(request)
            await asyncio.sleep(0.02)
            writer.close()
            counts["left"] += 1
        except OSError:
            counts["refused"] += 1


ATTACKS: dict[str, tuple[str, Attack | None]] = {
    "none": ("nobody is hostile", None),
    "long_prompts": ("128 prompts of 2,000 tokens in a request, again and again", long_prompts),
    "long_answers": ("128 answers of 1,500 tokens, likewise", long_answers),
    "long_stops": ("8 answers with a stop string of 2,001 characters that nearly matches", long_stops),
    "many_arrays": ("8 MiB of empty arrays as a prompt, one body after the other", many_arrays),
    "half_bodies": ("60 connections, each with 7 of 8 MiB", half_bodies),
    "silent": ("connections that say nothing, up to 5,000 of them", silent_connections),
    "wrong_keys": ("32 connections that try keys", wrong_keys),
    "garbage": ("16 connections with what is nearly HTTP", garbage),
    "trailers": ("4 connections with 600 kB of trailers", trailers),
    "unread_streams": ("64 streams that nobody reads, new ones every 3 s", unread_streams),
    "left_at_once": ("streams of 16 answers whose client leaves after 20 ms, without a pause", left_at_once),
}


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
