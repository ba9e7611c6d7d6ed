"""Posts bodies that are nearly right to every endpoint of a frontend, drawn by its own description.

    .venv/bin/python scripts/fuzz/json_bodies.py [--count 300000] [--seconds S] [--seed N] [--corpus]

Each is answered, or refused with an error in the API's form: none has a status of 500 or more (but 503 and
504), none takes long, and when all have gone, nothing is held and nothing has grown. What was found is in
corpus/json_bodies.json.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from fuzz import command  # noqa: E402
from fuzz.body_cases import draw_body  # noqa: E402
from fuzz.served import Served  # noqa: E402
from fuzz.wire import Malformed, Response, read_response  # noqa: E402

CORPUS = Path(__file__).with_name("corpus") / "json_bodies.json"
AT_ONCE = 16
LONG_S = 20.0
WARM_UP = 1000  # bodies, before its memory is looked at
MOST_BUFFERED = 1 << 20  # tokens: where cores are few, this program reads 128 answers at once late
OWN_FAULTS = range(500, 503)

Case = tuple[str, str, bytes]  # a label, the path, the body


class Client:
    """A connection, made anew where the server has closed it."""

    def __init__(self, served: Served, long_s: float = LONG_S) -> None:
        self._served = served
        self._long_s = long_s
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes = b"") -> Response | None:
        """Raises Malformed and TimeoutError."""
        if self._streams is None:
            self._streams = await self._served.connect()
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        async with asyncio.timeout(self._long_s):
            answer = await read_response(reader)
        if answer is None or answer.closes:
            self.close()
        return answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def fault_of(path: str, answer: Response | None) -> str | None:
    if answer is None:
        return "no answer"
    if answer.status in OWN_FAULTS:
        return f"a fault of its own: {answer.status} {answer.body[:500]!r}"
    try:
        if answer.fields[b"content-type"].startswith(b"text/event-stream"):
            events = [line[6:] for line in answer.body.decode().splitlines() if line.startswith("data: ")]
            told: list[Any] = [json.loads(event) for event in events if event != "[DONE]"]
            if not told:
                return "a stream without an event"
        else:
            told = [json.loads(answer.body)]
    except ValueError:
        return f"what is no JSON: {answer.body[:500]!r}"
    if answer.status >= 400 and not isinstance(told[0].get("error"), dict):
        return f"an error that is none: {answer.body[:500]!r}"
    return None


async def attack(served: Served, cases: Iterator[Case], counts: Counter[str], until: float) -> list[str]:
    faults: list[str] = []

    async def work() -> None:
        client = Client(served)
        for label, path, body in cases:
            if time.monotonic() > until or served.end is not None:
                break
            try:
                answer = await client.ask("POST", path, body)
                fault = fault_of(path, answer)
                counts[str(answer.status) if answer else "none"] += 1
            except (Malformed, TimeoutError, ConnectionError) as error:
                client.close()
                fault = f"{type(error).__name__} {error}"
            counts["bodies"] += 1
            if fault:
                faults.append(f"{label}: {path}: {fault}\n  {body[:2000]!r}")
                print(faults[-1], flush=True)
        client.close()

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return faults


async def description(served: Served) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """The schema of each path's body, and those that they refer to."""
    client = Client(served)
    answer = await client.ask("GET", "/openapi.json")
    client.close()
    assert answer is not None
    document = json.loads(answer.body)
    endpoints = {
        path: methods["post"]["requestBody"]["content"]["application/json"]["schema"]
        for path, methods in document["paths"].items()
        if "requestBody" in methods.get("post", {})
    }
    return endpoints, document["components"]["schemas"]


def run(first: int, count: int | None, seconds: float, found: list[Case] | None) -> command.Ran:
    served = Served(slot_wait_s=10.0, max_buffered_tokens=MOST_BUFFERED)
    counts = Counter[str]()
    try:
        known = asyncio.run(description(served))
        until = time.monotonic() + seconds

        def drawn(seeds: Iterable[int]) -> Iterator[Case]:
            return ((str(seed), *draw_body(seed, *known)) for seed in seeds)

        if count is None or count > WARM_UP:
            asyncio.run(attack(served, drawn(range(WARM_UP)), Counter(), until))
            served.warmed_up()
        cases = iter(found) if found else drawn(command.seeds(first, count))
        faults = asyncio.run(attack(served, cases, counts, until))
        return counts, faults + served.faults()
    finally:
        served.close()


def corpus() -> list[Case]:
    return [
        (name, path, body.encode("latin-1")) for name, (path, body) in json.loads(CORPUS.read_text()).items()
    ]


def main() -> int:
    options = command.parsed(__doc__, "bodies", 300_000, corpus=True)
    found = corpus() if options.corpus else None
    return command.told(lambda: run(options.seed, options.count, options.seconds, found), options.seed)


if __name__ == "__main__":
    sys.exit(main())
