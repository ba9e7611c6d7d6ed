"""Sends byte streams that are nearly HTTP to a frontend: chunks, trailers, pipelines, changed by chance.

    .venv/bin/python scripts/fuzz/http_streams.py [--count 60000] [--seconds S] [--seed N] [--corpus]

Whatever is sent, each answer is well-formed and none has a status of 500 or more (but 503 and 504); what is
right is answered right, also of others meanwhile; and when all have gone, nothing is held and nothing has
grown. What was found is in corpus/http_streams.json.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from fuzz import command  # noqa: E402
from fuzz.served import Served  # noqa: E402
from fuzz.stream_cases import Case, draw_case  # noqa: E402
from fuzz.wire import Malformed, Response, read_response  # noqa: E402

CORPUS = Path(__file__).with_name("corpus") / "http_streams.json"
AT_ONCE = 24
IDLE_S = 0.15  # nothing more comes
LONG_S = 20.0  # an answer that is due
WARM_UP = 500  # streams, before its memory is looked at
EVERY = 500  # streams, a polite request
OWN_FAULTS = range(500, 503)
BODY = json.dumps({"prompt": "hello", "max_tokens": 3})
POLITE = (
    "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    f"content-length: {len(BODY)}\r\n\r\n{BODY}"
).encode()


async def play(served: Served, case: Case) -> list[Response]:
    """The answers to a case. Raises Malformed."""
    reader, writer = await served.connect()
    answers: list[Response] = []
    try:
        for piece in case.pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        wanted = len(case.answers) if case.answers is not None else None
        while wanted is None or len(answers) < wanted:
            answer = await _next(reader, IDLE_S if wanted is None else LONG_S)
            if answer is None:
                break
            answers.append(answer)
    finally:
        writer.close()
    return answers


async def _next(reader: asyncio.StreamReader, patience_s: float) -> Response | None:
    """The next answer; None where none has begun in time, or the connection has ended."""
    reading = asyncio.ensure_future(read_response(reader))
    done, _ = await asyncio.wait([reading], timeout=patience_s)
    if not done and len(reader._buffer):  # type: ignore[attr-defined]
        done, _ = await asyncio.wait([reading], timeout=LONG_S)
    if not done:
        reading.cancel()
        return None
    try:
        return reading.result()
    except (ConnectionError, asyncio.IncompleteReadError):
        return None


def fault_of(case: Case, answers: list[Response]) -> str | None:
    statuses = [answer.status for answer in answers]
    if any(status in OWN_FAULTS for status in statuses):
        return f"a fault of its own: {[answer.body[:300] for answer in answers]}"
    if case.answers is not None and statuses != case.answers:
        return f"{statuses} where {case.answers} belong"
    for answer in answers:
        if answer.status >= 400 and b'"error"' not in answer.body:
            return f"an error that is none: {answer}"
    return None


async def attack(
    served: Served, cases: Iterator[tuple[str, Case]], counts: Counter[str], until: float
) -> list[str]:
    """What was wrong."""
    faults: list[str] = []

    async def work() -> None:
        for label, case in cases:
            if time.monotonic() > until or served.end is not None:
                return
            try:
                answers = await play(served, case)
                fault = fault_of(case, answers)
                counts.update(str(answer.status) for answer in answers)
                counts["without an answer"] += not answers
            except Malformed as error:
                fault = str(error)
            counts["streams"] += 1
            if fault:
                faults.append(
                    f"{label}: {fault}\n  {[piece.decode('latin-1') for piece in case.pieces]!r}"[:3000]
                )
                print(faults[-1], flush=True)
            if counts["streams"] % EVERY == 0:
                fault = await polite(served)
                faults.extend([fault] if fault else [])

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return faults


async def polite(served: Served) -> str | None:
    """Whether somebody else is answered right meanwhile."""
    (answer,) = await play(served, Case([POLITE], [200])) or [None]
    if answer is None or answer.status != 200 or json.loads(answer.body)["usage"]["completion_tokens"] != 3:
        return f"a polite request was answered {answer}"
    return None


def drawn(seeds: Iterable[int]) -> Iterator[tuple[str, Case]]:
    return ((str(seed), draw_case(seed)) for seed in seeds)


def run(cases: Iterator[tuple[str, Case]], count: int | None, seconds: float) -> command.Ran:
    served = Served(max_connections=1000, slot_wait_s=10.0)
    counts = Counter[str]()
    try:
        if count is None or count > WARM_UP:
            asyncio.run(attack(served, drawn(range(WARM_UP)), Counter(), time.monotonic() + seconds))
            served.warmed_up()
        faults = asyncio.run(attack(served, cases, counts, time.monotonic() + seconds))
        return counts, faults + served.faults()
    finally:
        served.close()


def corpus() -> Iterator[tuple[str, Case]]:
    found = json.loads(CORPUS.read_text())
    return (
        (name, Case([piece.encode("latin-1") for piece in pieces], None)) for name, pieces in found.items()
    )


def main() -> int:
    options = command.parsed(__doc__, "streams", 60_000, corpus=True)
    count = 0 if options.corpus else options.count
    cases = corpus() if options.corpus else drawn(command.seeds(options.seed, count))
    return command.told(lambda: run(cases, count, options.seconds), options.seed)


if __name__ == "__main__":
    sys.exit(main())
