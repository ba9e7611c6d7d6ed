"""Posts bodies that are as large as they may be to every endpoint of a frontend, one after the other.

    .venv/bin/python scripts/fuzz/large_bodies.py [--count 2000] [--seconds S] [--seed N]

Each is answered, or refused with a message. For none, the event loop or whoever has Python's lock is busy for
longer than 100 ms at a time, and the frontend never has more than 1 GiB. A client that asks for its health
and for short answers meanwhile gets all of them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]

from known_work import LONGEST_S  # noqa: E402

from fuzz import command  # noqa: E402
from fuzz.json_bodies import Client, description, fault_of  # noqa: E402
from fuzz.large_cases import LargeCase, draw_large  # noqa: E402
from fuzz.large_shapes import SIZE  # noqa: E402
from fuzz.served import Served  # noqa: E402
from fuzz.wire import Malformed, Response  # noqa: E402

# Bytes: after many large bodies a frontend keeps up to 600 MiB (fastokens' caches, the allocator's arenas),
# and what is made of one body of 8 MiB took up to 370 MiB more.
MOST_MEMORY = 1 << 30
AGAIN = 4  # times that a body is asked which kept it busy for too long
LONG_S = 60.0  # on a machine that has much else to do
EXPECTED = (200, 400, 404, 413, 422, 429)
PAUSE_S = 0.1  # of the client that is polite
SHORT = json.dumps({"prompt": "x", "max_tokens": 2}).encode()
BACKEND = {
    "max_context": 1 << 20,
    "prompt_heap": 4 << 20,
    "output_heap": 1 << 20,
    "device": "cpu",  # whose heartbeat may stand still: the mock takes its time with long prompts
}


class Attack:
    def __init__(self, served: Served, counts: Counter[str]) -> None:
        self._served, self._counts = served, counts
        self._client = Client(served, LONG_S)
        self.faults: list[str] = []

    async def one(self, seed: int, case: LargeCase) -> None:
        fault = await self._fault_of(case)
        self._counts["bodies"] += 1
        if fault:
            self._tell(f"{seed}: {case.path}, {len(case.body)} bytes: {fault}\n  {case.body[:300]!r}")

    def _tell(self, fault: str) -> None:
        self.faults.append(fault)
        print(fault, flush=True)

    async def _fault_of(self, case: LargeCase) -> str | None:
        await asyncio.to_thread(self._served.busy_s)
        self._served.forget_peak()
        try:
            answer = await self._client.ask("POST", case.path, case.body)
            memory = self._served.peak
            busy = await self._least_busy(case)
        except (Malformed, TimeoutError, ConnectionError) as error:
            self._client.close()
            return f"{type(error).__name__} {error}"
        self._counts[str(answer.status) if answer else "none"] += 1
        self._most("longest turn, us", busy["turn"] * 1e6)
        self._most("longest hold of the lock, us", busy["lock"] * 1e6)
        self._most("memory, MiB", memory >> 20)
        if max(busy.values()) > LONGEST_S:
            return f"busy for {busy}"
        if memory > MOST_MEMORY:
            return f"it has {memory >> 20} MiB"
        return unexpected(case.path, answer)

    async def _least_busy(self, case: LargeCase) -> dict[str, float]:
        """How busy the body that was just asked keeps the frontend. What is too long is asked again: a
        machine that others use is slower at times.
        """
        busy = await asyncio.to_thread(self._served.busy_s)
        for _ in range(AGAIN):
            if max(busy.values()) <= LONGEST_S:
                break
            await self._client.ask("POST", case.path, case.body)
            again = await asyncio.to_thread(self._served.busy_s)
            busy = {name: min(took_s, again[name]) for name, took_s in busy.items()}
        return busy

    def _most(self, what: str, value: float) -> None:
        self._counts[what] = max(self._counts[what], int(value))

    async def be_polite(self) -> None:
        client = Client(self._served, LONG_S)
        while True:
            for method, path, body in (("GET", "/health", b""), ("POST", "/v1/completions", SHORT)):
                began = time.monotonic()
                try:
                    answer = await client.ask(method, path, body)
                    status = answer.status if answer else None
                except (Malformed, TimeoutError, ConnectionError) as error:
                    client.close()
                    status = None
                    self._tell(f"{type(error).__name__} {error}")
                self._most(f"longest wait for {path}, ms", (time.monotonic() - began) * 1e3)
                self._counts["polite"] += 1
                if status != 200:
                    self._tell(f"{path}: {status} for a client that is polite")
            await asyncio.sleep(PAUSE_S)


def unexpected(path: str, answer: Response | None) -> str | None:
    if fault := fault_of(path, answer):
        return fault
    assert answer is not None
    if answer.status not in EXPECTED:
        return f"{answer.status} {answer.body[:500]!r}"
    if answer.status != 200 and not json.loads(answer.body)["error"].get("message"):
        return f"a refusal without a message: {answer.body[:500]!r}"
    return None


async def attack(
    served: Served, cases: Iterator[tuple[int, LargeCase]], counts: Counter[str], until: float
) -> list[str]:
    done = Attack(served, counts)
    polite = asyncio.create_task(done.be_polite())
    for seed, case in cases:
        await done.one(seed, case)
        if time.monotonic() > until or served.end is not None:
            break
    polite.cancel()
    return done.faults


def run(first: int, count: int | None, seconds: float) -> command.Ran:
    until = time.monotonic() + seconds
    served = Served(
        backend=BACKEND,
        slot_wait_s=10.0,
        max_buffered_tokens=1 << 20,
        max_body_bytes=SIZE,
        body_memory_bytes=1 << 30,
    )
    counts = Counter[str]()
    try:
        known = asyncio.run(description(served))
        cases = ((seed, draw_large(seed, *known)) for seed in command.seeds(first, count))
        return counts, asyncio.run(attack(served, cases, counts, until)) + served.faults()
    finally:
        served.close()


def main() -> int:
    options = command.parsed(__doc__, "bodies", 2000)
    return command.told(lambda: run(options.seed, options.count, options.seconds), options.seed)


if __name__ == "__main__":
    sys.exit(main())
